// Conversations of coding agents. A conversation is a header line, and one line per request. The
// requests are closed loop: the next request comes after the answer and a think time.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/simulate/random.h"
#include "apps/simulate/workload_sources.h"
#include "apps/support/file.h"

namespace kvcast::simulate {
namespace {

using nlohmann::json;

// A conversation ends before the first request whose prompt is longer than this.
constexpr int64_t kMaxPromptTokens = 128 << 10;
constexpr double kMaxThinkSeconds = 60;
// Conversations that start per second.
constexpr double kStartsPerSecond = 0.2;
constexpr int64_t kConversationsPerSlice = 40;
constexpr int64_t kFleetTokens = 3'000'000;
// Maximum number of requests in a slice.
constexpr int64_t kSliceRequests = 3000;
constexpr int64_t kMaxBlockTokens = 1 << 20;
// With up to this number of agents per conversation, all sessions have different numbers.
constexpr int64_t kMaxAgents = 1 << 20;

struct Conversation {
  int64_t tool_blocks = 0;
  uint64_t tools = 0;  // identity of the tool prompt: a hash of the model and the prompt's length
  std::vector<uint64_t> tool_names;       // the blocks of the tool prompt in the first request
  std::vector<WorkloadRequest> requests;  // `after` and `next` are positions in this list
};

// Returns the value of a member that must be an integer from `low` to `high`. If not, sets `error`.
int64_t Integer(const json& row, const char* key, int64_t low, int64_t high, std::string& error) {
  if (!error.empty()) return low;  // the first error is reported
  const auto it = row.find(key);
  if (it == row.end() || !it->is_number_integer()) {
    error = std::string(key) + " is missing or not an integer";
    return low;
  }
  const auto value = it->get<int64_t>();
  if (value < low || value > high) {
    error = std::string(key) + " is out of range";
    return low;
  }
  return value;
}

uint64_t NameOf(std::string_view text) {
  uint64_t name = text.size();
  for (const char c : text) name = Mix(name, static_cast<uint8_t>(c));
  return name;
}

class Parser {
 public:
  // Returns the error. Empty: the line is valid.
  std::string TakeLine(std::string_view line) {
    const json row = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_discarded() || !row.is_object()) return "not a JSON object";
    return row.contains("timestamp") ? TakeRequest(row) : TakeHeader(row);
  }

  int64_t block_tokens() const { return block_tokens_; }
  std::vector<Conversation>& conversations() { return conversations_; }

 private:
  std::string TakeHeader(const json& row) {
    std::string error;
    const int64_t block = Integer(row, "block_size", 1, kMaxBlockTokens, error);
    const int64_t tool = Integer(row, "tool_tokens", 0, kMaxPromptTokens * 16, error);
    if (!error.empty()) return error;
    if (block_tokens_ != 0 && block != block_tokens_) {
      return "block_size differs from that of the first conversation";
    }
    block_tokens_ = block;
    conversations_.emplace_back();
    conversations_.back().tool_blocks = tool / block;
    tool_tokens_ = tool;
    last_.clear();
    ended_ = false;
    return {};
  }

  std::string TakeRequest(const json& row) {
    if (conversations_.empty()) return "a request before the first header";
    std::string error;
    WorkloadRequest request;
    request.prompt_tokens = Integer(row, "input_length", 1, int64_t{1} << 24, error);
    request.output_tokens =
        std::max<int64_t>(Integer(row, "output_length", 0, int64_t{1} << 20, error), 1);
    const int64_t agent = Integer(row, "agent", 0, kMaxAgents - 1, error);
    if (!error.empty()) return error;
    if (ended_ || request.prompt_tokens > kMaxPromptTokens) {
      ended_ = true;
      return {};
    }
    double think_ms = 0;
    if (const auto it = row.find("think_ms"); it != row.end() && it->is_number()) {
      think_ms = std::max(it->get<double>(), 0.0);
    }
    Conversation& conversation = conversations_.back();
    const auto runs = row.find("hash_runs");
    if (runs == row.end() || !runs->is_array()) return "hash_runs is missing or not an array";
    if (conversation.requests.empty()) {
      const auto model = row.find("model");
      conversation.tools =
          Mix(NameOf(model != row.end() && model->is_string() ? model->get<std::string>() : ""),
              static_cast<uint64_t>(tool_tokens_));
    }
    error = ReadBlocks(*runs, agent, conversation, request);
    if (!error.empty()) return error;
    request.delay_s = std::min(think_ms / 1000, kMaxThinkSeconds);
    Link(agent, conversation, request);
    return {};
  }

  std::string ReadBlocks(const json& runs, int64_t agent, Conversation& conversation,
                         WorkloadRequest& request) {
    const auto number = static_cast<uint64_t>(conversations_.size());
    const int64_t needed = request.prompt_tokens / block_tokens_;
    for (const json& run : runs) {
      if (!run.is_array() || run.size() != 2 || !run[0].is_number_integer() ||
          !run[1].is_number_integer()) {
        return "hash_runs holds an entry that is not a pair of integers";
      }
      const auto first = run[0].get<uint64_t>();
      const auto count = run[1].get<int64_t>();
      if (count < 0) return "hash_runs holds a negative count";
      if (count > needed - std::ssize(request.blocks)) {
        return "hash_runs has more blocks than the " + std::to_string(needed) +
               " that input_length needs";
      }
      for (uint64_t k = 0; k < static_cast<uint64_t>(count); ++k) {
        request.blocks.push_back(Mix(number, first + k));
      }
    }
    if (std::ssize(request.blocks) != needed) {
      return "hash_runs has " + std::to_string(request.blocks.size()) +
             " blocks where input_length needs " + std::to_string(needed);
    }
    if (agent == 0) ShareTools(conversation, request);
    return {};
  }

  // The ids of a trace are private to a conversation. Conversations with the same model and the
  // same tools share the prompt of the tools. If a later request begins with blocks of the first
  // request's tool prompt, these blocks are shared too.
  static void ShareTools(Conversation& conversation, WorkloadRequest& request) {
    std::vector<uint64_t>& tools = conversation.tool_names;
    const auto most =
        static_cast<size_t>(std::min(conversation.tool_blocks, std::ssize(request.blocks)));
    if (tools.empty())
      tools.assign(request.blocks.begin(), request.blocks.begin() + static_cast<ptrdiff_t>(most));
    for (size_t k = 0; k < std::min(most, tools.size()) && request.blocks[k] == tools[k]; ++k) {
      request.blocks[k] = Mix(conversation.tools, k);
    }
  }

  void Link(int64_t agent, Conversation& conversation, WorkloadRequest& request) {
    const auto position = std::ssize(conversation.requests);
    request.session = agent;
    const auto last = last_.find(agent);
    if (last != last_.end()) {
      request.after = last->second;
      WorkloadRequest& earlier = conversation.requests[static_cast<size_t>(last->second)];
      const bool longer =
          earlier.prompt_tokens + earlier.output_tokens <= request.prompt_tokens &&
          earlier.blocks.size() <= request.blocks.size() &&
          std::equal(earlier.blocks.begin(), earlier.blocks.end(), request.blocks.begin());
      if (longer) earlier.next = position;
    } else if (agent != 0 && !conversation.requests.empty()) {
      // A sub-agent starts after the main agent's latest request so far.
      const auto main = last_.find(0);
      if (main != last_.end()) request.after = main->second;
    }
    last_[agent] = position;
    conversation.requests.push_back(std::move(request));
  }

  int64_t block_tokens_ = 0;
  int64_t tool_tokens_ = 0;  // of the last header
  std::vector<Conversation> conversations_;
  std::map<int64_t, int64_t> last_;  // by agent of the conversation: its latest request so far
  bool ended_ = false;
};

Slice MakeSlice(std::vector<Conversation>& conversations, size_t begin, size_t end,
                int64_t block_tokens, int64_t max_requests, Random random) {
  Slice slice{.block_tokens = block_tokens, .requests = {}};
  double start_s = 0;
  int64_t session = 0;
  for (size_t c = begin; c < end; ++c) {
    const auto base = std::ssize(slice.requests);
    if (base >= max_requests) break;
    for (WorkloadRequest request : conversations[c].requests) {
      if (std::ssize(slice.requests) >= max_requests) break;
      if (request.after == kNoRequest) {
        request.delay_s = start_s;
      } else {
        request.after += base;
      }
      if (request.next != kNoRequest) request.next += base;
      request.session += session;
      slice.requests.push_back(std::move(request));
    }
    const auto size = std::ssize(slice.requests);
    for (int64_t i = base; i < size; ++i) {
      int64_t& next = slice.requests[static_cast<size_t>(i)].next;
      if (next >= size) next = kNoRequest;
    }
    session += kMaxAgents;
    start_s += random.Exponential(1 / kStartsPerSecond);
  }
  return slice;
}

}  // namespace

Result<Workload> ParseAgents(std::string_view text, const std::string& name,
                             const SliceOptions& options) {
  Parser parser;
  int64_t number = 0;
  for (const std::string_view line : tools::SplitLines(text)) {
    ++number;
    if (line.empty()) continue;
    const std::string error = parser.TakeLine(line);
    if (!error.empty()) {
      return Status(StatusCode::kMalformed,
                    name + ":" + std::to_string(number) + ": " + error +
                        " (expected conversations of agents: JSON lines with a header)");
    }
  }
  std::vector<Conversation>& conversations = parser.conversations();
  std::erase_if(conversations, [](const Conversation& c) { return c.requests.empty(); });
  if (conversations.empty()) return Status(StatusCode::kMalformed, name + ": holds no request");
  // The recorded conversations are ordered by time and user. A shuffle makes the slices similar.
  Random random(options.seed);
  for (size_t i = conversations.size(); i > 1; --i) {
    std::swap(conversations[i - 1], conversations[random.Next() % i]);
  }
  const auto count = static_cast<int64_t>(conversations.size());
  const int64_t slices = std::clamp<int64_t>(options.slices, 1, count);
  const int64_t most = options.requests > 0 ? options.requests : kSliceRequests;
  const int64_t each = std::min(kConversationsPerSlice, count / slices);
  Workload workload{.name = name, .slices = {}, .fleet_tokens = kFleetTokens, .load = {}};
  for (int64_t s = 0; s < slices; ++s) {
    const auto begin = static_cast<size_t>(s * each);
    workload.slices.push_back(MakeSlice(conversations, begin, begin + static_cast<size_t>(each),
                                        parser.block_tokens(), most,
                                        Random(Mix(options.seed, static_cast<uint64_t>(s)))));
  }
  return workload;
}

}  // namespace kvcast::simulate
