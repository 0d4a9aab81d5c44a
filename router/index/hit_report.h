// Hit reports: stores that repeat what a request hit, instead of saying that something new is
// there.
//
// With vLLM's `kv_cache_report_mode` "full" an engine answers a prefix cache hit with one store a
// group, from the start of the prompt to the hit, window blocks that are gone included. Nothing was
// allocated: to count these as copies would keep blocks in the index that the engine has evicted.
// On the wire a report looks like a store of second copies. What tells them apart is that an engine
// which could have hit a prefix does not compute it again: so a store from the root, in every group
// at once, of a prefix that could be served as it stands, is a report. The readings this can get
// wrong: a request that was told not to read the prefix cache, and one loaded or computed beside
// its twin. So only the reports of a worker that is registered to send them are left out. Of a
// worker that is registered for neither they are counted, and its answers are not certain while a
// report could decide them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/flat_hash_set.h"
#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"
#include "router/index/group_catalogue.h"
#include "router/index/residency_map.h"

namespace kvcast::router {

enum class HitReportReading : uint8_t {
  kNo,
  kMaybe,    // also what a request does whose prompt ends with the span: its last token is computed
             // anew, and no shorter prefix could be served
  kUnclear,  // a report, or a copy: nothing tells which
  kYes,
};

struct HitReport {
  HitReportReading reading = HitReportReading::kNo;
  size_t events = 0;    // leading events that are the report; kUnclear: 0 if that is not known
  uint64_t blocks = 0;  // hashes in them
};

// What is made of the readings of one worker.
class HitReportState {
 public:
  explicit HitReportState(HitReports reports) : reports_(reports) {}

  // Whether a store may be a report.
  bool looks() const { return reports_ != HitReports::kNever; }

  // Whether the report is to be left out of the index. A doubtful one is if the engine is known to
  // send them.
  bool Skips(const HitReport& report) {
    if (report.reading == HitReportReading::kNo || contradicted_) return false;
    if (report.reading == HitReportReading::kUnclear) {
      // Of a worker that sends reports: nothing can be left out.
      contradicted_ |= reports_ == HitReports::kExpected;
      seen_ |= report.events == 0;
      return false;
    }
    if (report.reading == HitReportReading::kYes) seen_ = true;
    if (reports_ == HitReports::kUnknown) return false;
    if (report.reading == HitReportReading::kMaybe) doubtful_blocks_ += report.blocks;
    return true;
  }
  // Of a worker of which nothing is known: a block of a store that is a copy or a report. `block`:
  // of a hash and a group, well mixed. `held`: its group held it before.
  void NoteDoubtful(uint64_t block, bool held) {
    if (reports_ != HitReports::kUnknown) return;
    if (doubtful_.size() == kMaxDoubtful) seen_ = true;
    if (seen_) return;
    doubtful_.insert(block);
    if (!held) in_doubt_.insert(block);
  }
  bool has_doubtful() const { return !doubtful_.empty(); }
  // A copy of the block was removed. If it was the last one that is counted, there was none more.
  // If it was not, the engine may hold none.
  void NoteRemoved(uint64_t block, bool last) {
    if (!doubtful_.contains(block)) return;
    if (last) {
      doubtful_.erase(block);
      in_doubt_.erase(block);
    } else {
      in_doubt_.insert(block);
    }
  }
  // Under the right reading every removed block is known, but for doubtful ones. More than those,
  // and the stores that were left out have been copies: they are counted from now on.
  void NoteUnknownRemove() {
    if (reports_ == HitReports::kUnknown || (!seen_ && doubtful_blocks_ == 0)) return;
    if (doubtful_blocks_ == 0) contradicted_ = true;
    if (doubtful_blocks_ > 0) --doubtful_blocks_;
  }
  // The worker's blocks came from a snapshot, and its publisher counts reports as copies.
  void NoteForeignCopies() { contradicted_ |= reports_ == HitReports::kExpected; }
  // The cache is empty.
  void Clear() { *this = HitReportState(reports_); }
  // Whether what is counted is what there is. An engine that is known to send reports is believed
  // until its removes contradict that.
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
  absl::flat_hash_set<uint64_t> in_doubt_;  // of them: the engine may hold none
};

// Whether the leading events are a hit report of the worker whose places on the GPU are `places`,
// by group (kNoPlace or beyond the end: it holds nothing there). Costs no more than a look at the
// first events' shape and one probe of the map where they are not.
// `replay_tokens`: a prefix of no more tokens is no hit (WorkerConfig::replay_tokens).
HitReport ReadHitReport(std::span<const Event> events, std::span<const PlaceId> places,
                        const GroupCatalogue& catalogue, const ResidencyMap& map,
                        int64_t replay_tokens = 0);

}  // namespace kvcast::router
