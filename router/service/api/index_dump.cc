// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/index_dump.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "router/service/api/state_json.h"
#include "router/service/json/json_fields.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr size_t kBlocksPerEvent = 256;

struct Entry {
  BlockHash hash;
  uint32_t copies = 0;
  Tier tier = Tier::kGpu;
  uint8_t group = 0;

  std::pair<Tier, uint8_t> group_tier() const { return {tier, group}; }
};

template <typename T>
void AppendNumber(T number, std::string& text) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
}

void AppendHash(const BlockHash& hash, std::string& text) {
  if (hash.form() == BlockHash::Form::kNegative) {
    return AppendNumber(static_cast<int64_t>(hash.integer()), text);
  }
  if (!hash.is_bytes()) return AppendNumber(hash.integer(), text);
  text += '"';
  for (const uint8_t byte : hash.bytes()) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  text += '"';
}

void AppendBlock(const Entry& entry, std::string& text) {
  text += "{\"block_hash\":";
  AppendHash(entry.hash, text);
  if (entry.copies > 1) {
    text += ",\"copies\":";
    AppendNumber(entry.copies, text);
  }
  text += '}';
}

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Writes the document in pieces. The HTTP server calls Next for each piece. IndexDump locks the
// index only while it copies entries, so a slow client does not block the writer of the index.
class IndexDump {
 public:
  IndexDump(ServiceCore& core, const HttpRequest& request, size_t entries_max)
      : core_(core), entries_max_(std::max<size_t>(entries_max, 1)) {
    std::map<std::pair<std::string, std::string>, Scope> scopes;
    for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
      const WorkerRegistration& config = worker->config;
      if (!IsWanted(request, config)) continue;
      scopes[{config.model, config.routing_group}].push_back(worker);
    }
    for (auto& [name, scope] : scopes) scopes_.push_back(std::move(scope));
  }
  ~IndexDump() { core_.dumping = false; }
  IndexDump(const IndexDump&) = delete;
  IndexDump& operator=(const IndexDump&) = delete;

  std::string Next() {
    std::string piece;
    while (!ended_ && piece.size() < kPieceBytes) Advance(piece);
    return piece;
  }

 private:
  // The workers of one model and routing group.
  using Scope = std::vector<std::shared_ptr<const FleetWorker>>;

  void Advance(std::string& piece) {
    if (next_entry_ < entries_.size()) return AppendEvent(piece);
    if (scope_ == scopes_.size()) {
      piece += scopes_.empty() ? "{}\n" : "}\n";
      ended_ = true;
    } else if (worker_ == scopes_[scope_].size()) {
      piece += "]}";
      worker_ = 0;
      ++scope_;
    } else {
      if (worker_ == 0 && slice_ == 0) BeginScope(piece);
      ReadSlice();
    }
  }

  void BeginScope(std::string& piece) {
    const FleetWorker& first = *scopes_[scope_].front();
    piece += scope_ == 0 ? '{' : ',';
    piece += Quoted(first.config.model + ":" + first.config.routing_group) + ":{\"block_size\":";
    AppendNumber(BlockSizeOf(core_, first), piece);
    piece += ",\"events\":[";
    first_event_ = true;
  }

  // Reads the next slice of the worker's entries. A small worker has one slice. The entries of a
  // large worker are distributed over the slices by a seeded hash of the block hash.
  void ReadSlice() {
    const auto& worker = scopes_[scope_][worker_];
    if (slice_ == 0) {
      const uint64_t residencies = core_.index.counters(worker->id).residencies;
      slices_ = 1 + residencies / entries_max_;
    }
    entries_.clear();
    next_entry_ = 0;
    core_.index.ForEachResidency(
        worker->id, [this](Tier tier, uint8_t group, const BlockHash& hash, uint32_t copies) {
          if (slices_ > 1 && slicer_(hash) % slices_ != slice_) return;
          entries_.push_back({hash, copies, tier, group});
        });
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.group_tier() < b.group_tier(); });
    head_ = R"({"worker_id":)" + Dumped(InstanceJson(worker->config)) + R"(,"dp_rank":)" +
            std::to_string(worker->config.data_parallel_rank);
    rank_ = worker->config.data_parallel_rank;
    if (++slice_ < slices_) return;
    slice_ = 0;
    ++worker_;
  }

  static std::string Dumped(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void AppendEvent(std::string& piece) {
    const auto group_tier = entries_[next_entry_].group_tier();
    if (!std::exchange(first_event_, false)) piece += ',';
    piece += head_ + R"(,"medium":")" + TierName(group_tier.first) + R"(","group_idx":)";
    AppendNumber(group_tier.second, piece);
    piece += R"(,"event":{"event_id":)";
    AppendNumber(next_event_++, piece);
    piece += R"(,"dp_rank":)";
    AppendNumber(rank_, piece);
    piece += R"(,"data":{"stored":{"parent_hash":null,"blocks":[)";
    const size_t end = std::min(entries_.size(), next_entry_ + kBlocksPerEvent);
    for (const size_t begin = next_entry_;
         next_entry_ < end && entries_[next_entry_].group_tier() == group_tier; ++next_entry_) {
      if (next_entry_ > begin) piece += ',';
      AppendBlock(entries_[next_entry_], piece);
    }
    piece += "]}}}}";
  }

  ServiceCore& core_;
  const size_t entries_max_;
  // The order of the events shows which hashes are in the same slice. A separate seed keeps the
  // seed of the index secret.
  const SeededHash slicer_{NewSeed()};
  std::vector<Scope> scopes_;
  size_t scope_ = 0;
  size_t worker_ = 0;   // position in the current scope
  uint64_t slice_ = 0;  // next slice of the current worker
  uint64_t slices_ = 1;
  std::vector<Entry> entries_;  // of one slice, ordered by tier and group
  size_t next_entry_ = 0;       // position of the next entry
  std::string head_;            // the text at the start of each event of the worker
  int64_t rank_ = 0;
  uint64_t next_event_ = 0;
  bool first_event_ = true;
  bool ended_ = false;
};

}  // namespace

const std::string& InstanceOf(const WorkerRegistration& source) {
  return source.instance.empty() ? source.worker.name : source.instance;
}

Json InstanceJson(const WorkerRegistration& source) {
  return source.instance_is_number ? Json(std::stoll(source.instance)) : Json(InstanceOf(source));
}

int64_t BlockSizeOf(const ServiceCore& core, const FleetWorker& worker) {
  const int64_t registered = worker.config.block_size;
  return registered > 0 ? registered : core.index.hash_block_size(worker.id);
}

bool IsWanted(const HttpRequest& request, const WorkerRegistration& source) {
  const auto matches = [&request](const char* name, const std::string& value) {
    const auto it = request.query.find(name);
    return it == request.query.end() || it->second == value;
  };
  return matches("model_name", source.model) && matches("routing_group", source.routing_group);
}

HttpReply DumpIndex(ServiceCore& core, const HttpRequest& request, size_t entries_max) {
  if (core.dumping.exchange(true)) return HttpError(503, "another dump is in progress");
  const auto dump = std::make_shared<IndexDump>(core, request, entries_max);
  return {.next_piece = [dump] { return dump->Next(); }};
}

}  // namespace kvcast::router
