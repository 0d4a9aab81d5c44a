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
// its twin. So only a worker that is registered to send reports is read like this.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvcast/event.h"
#include "kvcast/prefix_index.h"
#include "router/group_catalogue.h"
#include "router/residency_map.h"

namespace kvcast::router {

enum class HitReportReading : uint8_t {
  kNo,
  kMaybe,  // also what a request does whose prompt ends with the span: its last token is computed
           // anew, and no shorter prefix could be served
  kYes,
};

struct HitReport {
  HitReportReading reading = HitReportReading::kNo;
  size_t events = 0;    // leading events that are the report; 0 for kNo
  uint64_t blocks = 0;  // hashes in them
};

// What is made of the readings of one worker.
class HitReportState {
 public:
  explicit HitReportState(HitReports reports) : reports_(reports) {}

  // Whether the report is to be left out of the index. A doubtful one is if the engine is known to
  // send them.
  bool Skips(const HitReport& report) {
    if (report.reading == HitReportReading::kNo || contradicted_) return false;
    if (report.reading == HitReportReading::kYes) seen_ = true;
    if (reports_ == HitReports::kUnknown) return false;
    if (report.reading == HitReportReading::kMaybe) doubtful_blocks_ += report.blocks;
    return true;
  }
  // Under the right reading every removed block is known, but for doubtful ones. More than those,
  // and the stores that were left out have been copies: they are counted from now on.
  void NoteUnknownRemove() {
    if (reports_ == HitReports::kUnknown || (!seen_ && doubtful_blocks_ == 0)) return;
    if (doubtful_blocks_ == 0) contradicted_ = true;
    if (doubtful_blocks_ > 0) --doubtful_blocks_;
  }
  // What the worker holds was taken from its publisher, which counts reports as copies.
  void NoteForeignCopies() { contradicted_ |= reports_ != HitReports::kUnknown; }
  // The cache is empty.
  void Clear() { *this = HitReportState(reports_); }
  // Whether what is counted is what there is. An engine that is known to send reports is believed
  // until its removes contradict that.
  bool certain() const { return reports_ == HitReports::kUnknown ? !seen_ : !contradicted_; }

 private:
  HitReports reports_;
  bool seen_ = false;
  bool contradicted_ = false;
  uint64_t doubtful_blocks_ = 0;
};

// Whether the leading events are a hit report of the worker whose places on the GPU are `places`,
// by group (kNoPlace or beyond the end: it holds nothing there). Costs no more than a look at the
// first events' shape and one probe of the map where they are not.
// `replay_tokens`: a prefix of no more tokens is no hit (WorkerConfig::replay_tokens).
HitReport ReadHitReport(std::span<const Event> events, std::span<const PlaceId> places,
                        const GroupCatalogue& catalogue, const ResidencyMap& map,
                        int64_t replay_tokens = 0);

}  // namespace kvcast::router
