// Hit reports: stores that repeat the blocks of a prefix cache hit. They add no residency.
//
// With vLLM's `kv_cache_report_mode` "full", an engine answers a prefix cache hit with one store
// per group, from the start of the prompt to the hit, including window blocks that it does not hold
// any more. The engine allocated no block. If the index counted these stores as copies, it would
// keep blocks that the engine has evicted. On the wire a report looks like a store of second
// copies. The difference: an engine that could have hit a prefix does not compute it again. A store
// from the root, in every group together, of a prefix that could be served from the present blocks
// is therefore a report. This rule is wrong for a request that must not read the prefix cache, and
// for a request that was loaded or computed beside an equal request.
//
// Only the reports of a worker that is registered to send them are left out. If the registration of
// a worker does not state whether it sends reports, they are counted. The worker's answers are then
// not certain while a report could change them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/flat_hash_set.h"
#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"
#include "router/index/residency_map.h"
#include "router/rules/group_registry.h"

namespace kvcast::router {

enum class HitReportReading : uint8_t {
  kNo,
  // May also be a request whose prompt ends with the span: the engine computes its last token
  // again, and no shorter prefix could be served.
  kMaybe,
  kUnclear,  // a report or a copy; undecidable
  kYes,
};

struct HitReport {
  HitReportReading reading = HitReportReading::kNo;
  size_t events = 0;    // leading events of the report; kUnclear: 0 if unknown
  uint64_t blocks = 0;  // hashes in these events
};

// The conclusions from the readings of one worker.
class HitReportState {
 public:
  explicit HitReportState(HitReports reports) : reports_(reports) {}

  // True if a store may be a report.
  bool looks() const { return reports_ != HitReports::kNever; }

  // True if the report must be left out of the index. A kMaybe report is left out if the engine is
  // known to send reports.
  bool Skips(const HitReport& report) {
    if (report.reading == HitReportReading::kNo || contradicted_) return false;
    if (report.reading == HitReportReading::kUnclear) {
      // If the worker sends reports, no event can be left out safely from here on.
      contradicted_ |= reports_ == HitReports::kExpected;
      seen_ |= report.events == 0;
      return false;
    }
    if (report.reading == HitReportReading::kYes) seen_ = true;
    if (reports_ == HitReports::kUnknown) return false;
    if (report.reading == HitReportReading::kMaybe) doubtful_blocks_ += report.blocks;
    return true;
  }
  // For workers whose registration does not state whether they send reports: notes a block of a
  // store that is a copy or a report. `block`: a well-mixed value of a hash and a group. `held`:
  // its group held it before.
  void NoteDoubtful(uint64_t block, bool held) {
    if (reports_ != HitReports::kUnknown) return;
    if (doubtful_.size() == kMaxDoubtful) seen_ = true;
    if (seen_) return;
    doubtful_.insert(block);
    if (!held) in_doubt_.insert(block);
  }
  bool has_doubtful() const { return !doubtful_.empty(); }
  // A copy of the block was removed. `last`: it was the last counted copy, so the block had no copy
  // more than counted. Otherwise the engine may hold none.
  void NoteRemoved(uint64_t block, bool last) {
    if (!doubtful_.contains(block)) return;
    if (last) {
      doubtful_.erase(block);
      in_doubt_.erase(block);
    } else {
      in_doubt_.insert(block);
    }
  }
  // If the readings are right, every removed block is known, except blocks of kMaybe reports. If
  // there are more unknown removes than such blocks, the stores that were left out were copies.
  // They are counted from then on.
  void NoteUnknownRemove() {
    if (reports_ == HitReports::kUnknown || (!seen_ && doubtful_blocks_ == 0)) return;
    if (doubtful_blocks_ == 0) contradicted_ = true;
    if (doubtful_blocks_ > 0) --doubtful_blocks_;
  }
  // The worker's blocks came from a snapshot, and its publisher counts reports as copies.
  void NoteForeignCopies() { contradicted_ |= reports_ == HitReports::kExpected; }
  // The cache is empty.
  void Clear() { *this = HitReportState(reports_); }
  // True if the counted copies are the copies that exist. If an engine is known to send reports,
  // this is assumed until its removes contradict it.
  bool certain() const {
    if (reports_ == HitReports::kUnknown) return !seen_ && in_doubt_.empty();
    return !contradicted_;
  }

 private:
  static constexpr size_t kMaxDoubtful = 4096;

  HitReports reports_;
  bool seen_ = false;
  bool contradicted_ = false;
  uint64_t doubtful_blocks_ = 0;
  absl::flat_hash_set<uint64_t> doubtful_;
  absl::flat_hash_set<uint64_t> in_doubt_;  // subset of doubtful_: the engine may hold no copy
};

// Decides if the leading events are a hit report. `places`: the worker's GPU places by group;
// kNoPlace or beyond the end: the worker holds no block there. `replay_tokens`: a prefix of at most
// so many tokens is no hit (WorkerConfig::replay_tokens). If the first events do not have the form
// of a report, the cost is one probe of the map.
HitReport ReadHitReport(std::span<const Event> events, std::span<const PlaceId> places,
                        const GroupRegistry& registry, const ResidencyMap& map,
                        int64_t replay_tokens = 0);

}  // namespace kvcast::router
