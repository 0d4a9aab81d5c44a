// SPDX-License-Identifier: Apache-2.0
#include "apps/support/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/support/file.h"
#include "apps/support/mix.h"

namespace kvcast::tools {
namespace {

using nlohmann::json;

// The maximum input_length, and the maximum output_length. The longest input of the bundled trace
// has 122,889 tokens.
constexpr int64_t kMaxTokens = int64_t{1} << 24;

std::optional<int64_t> Number(const json& row, const char* key, int64_t max) {
  const auto it = row.find(key);
  if (it == row.end() || !it->is_number_integer()) return std::nullopt;
  const auto value = it->get<int64_t>();
  if (value < 0 || value > max) return std::nullopt;
  return value;
}

// Returns the error in the row. Empty: the row is valid.
std::string ParseRow(std::string_view line, TraceRequest& request) {
  const json row = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (row.is_discarded() || !row.is_object()) return "not a JSON object";
  const auto timestamp = Number(row, "timestamp", int64_t{1} << 50);
  const auto input = Number(row, "input_length", kMaxTokens);
  const auto output = Number(row, "output_length", kMaxTokens);
  if (!timestamp) return "timestamp is missing or out of range";
  if (!input || *input == 0) return "input_length is missing or out of range";
  if (!output) return "output_length is missing or out of range";
  const auto ids = row.find("hash_ids");
  if (ids == row.end() || !ids->is_array()) return "hash_ids is missing or not an array";
  const auto blocks = static_cast<size_t>((*input + kTraceBlockTokens - 1) / kTraceBlockTokens);
  if (ids->size() != blocks) {
    return "hash_ids has " + std::to_string(ids->size()) + " entries where input_length needs " +
           std::to_string(blocks);
  }
  for (const json& id : *ids) {
    if (!id.is_number_integer()) return "hash_ids holds an entry that is not an integer";
    request.block_ids.push_back(id.get<int64_t>());
  }
  request.arrival_s = static_cast<double>(*timestamp) / 1000.0;
  request.input_length = *input;
  request.output_length = std::max<int64_t>(*output, 1);
  return {};
}

// Recorded arrival times have a resolution of about 3 s. This function spreads the requests of one
// time step evenly up to the next step.
void SpreadSteps(std::vector<TraceRequest>& requests) {
  for (size_t begin = 0; begin < requests.size();) {
    size_t end = begin;
    while (end < requests.size() && requests[end].arrival_s == requests[begin].arrival_s) ++end;
    if (end == requests.size()) return;
    const double gap = requests[end].arrival_s - requests[begin].arrival_s;
    for (size_t i = begin; i < end; ++i) {
      requests[i].arrival_s +=
          gap * static_cast<double>(i - begin) / static_cast<double>(end - begin);
    }
    begin = end;
  }
}

}  // namespace

Result<std::vector<TraceRequest>> LoadTrace(const std::string& path, int64_t limit) {
  auto content = ReadFile(path);
  if (!content.ok()) return content.status();
  return ParseTrace(*content, path, limit);
}

Result<std::vector<TraceRequest>> ParseTrace(std::string_view content, const std::string& name,
                                             int64_t limit) {
  std::vector<TraceRequest> requests;
  int64_t line_number = 0;
  for (const std::string_view line : SplitLines(content)) {
    ++line_number;
    if (line.empty()) continue;
    if (limit > 0 && static_cast<int64_t>(requests.size()) == limit) break;
    TraceRequest request;
    const std::string error = ParseRow(line, request);
    if (!error.empty()) {
      return Status(StatusCode::kMalformed,
                    name + ":" + std::to_string(line_number) + ": " + error +
                        " (expected a Mooncake trace: JSON lines with timestamp, input_length, "
                        "output_length, hash_ids)");
    }
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return Status(StatusCode::kMalformed, name + ": holds no request");
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.arrival_s < b.arrival_s; });
  SpreadSteps(requests);
  return requests;
}

std::vector<TokenId> PromptTokens(const TraceRequest& request, int64_t vocabulary) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(request.input_length));
  for (const int64_t id : request.block_ids) {
    const uint64_t base = Mix(static_cast<uint64_t>(id));
    const int64_t left = request.input_length - static_cast<int64_t>(tokens.size());
    for (int64_t k = 0; k < std::min(left, kTraceBlockTokens); ++k) {
      tokens.push_back(static_cast<TokenId>(Mix(base + static_cast<uint64_t>(k)) %
                                            static_cast<uint64_t>(vocabulary)));
    }
  }
  return tokens;
}

TokenId OutputToken(int64_t request, int64_t k, int64_t vocabulary) {
  const uint64_t base = Mix(~static_cast<uint64_t>(request));
  return static_cast<TokenId>(Mix(base + static_cast<uint64_t>(k)) %
                              static_cast<uint64_t>(vocabulary));
}

}  // namespace kvcast::tools
