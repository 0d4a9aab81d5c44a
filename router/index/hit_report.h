// Hit reports: stores that repeat the blocks of a prefix cache hit. They add no residency.
//
// With vLLM's `kv_cache_report_mode` "full", an engine sends one store per group for each prefix
// cache hit. The store covers the prompt from its start to the end of the hit, including window
// blocks that the engine has evicted. The engine allocated no block. If the index counted these
// stores as copies, it would keep blocks that the engine has evicted. The event of a report is
// equal to the event of a store of second copies. But an engine that can hit a prefix does not
// compute the prefix again. The index therefore reads stores as a report if every group stores the
// same prefix from the root, and the present blocks can serve this prefix. This rule is wrong for a
// request that must not read the prefix cache, and for a request that was loaded or computed at the
// same time as an equal request.
//
// The index leaves out reports only if the worker is registered to send them. If the registration
// does not state whether the worker sends reports, the index counts the stores as copies. The
// worker's answers are then not certain while a report could change them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/flat_hash_set.h"
#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"
#include "router/index/residency_map.h"
#include "router/rules/group_registry.h"
#include "src/base/byte_fields.h"

namespace kvcast::router {

enum class HitReportReading : uint8_t {
  kNo,
  // A report, or stores of computed blocks. These two cannot be distinguished in two cases:
  // - No prefix shorter than the span can be served. A request whose prompt ends with the span then
  //   has no hit, because a hit never covers the last token. The request computes the blocks again.
  // - The span has at most replay_tokens tokens. The engine then reports a hit, but computes all
  //   tokens of the hit again.
  kMaybe,
  kUnclear,  // the events do not show whether they are a report or copies
  kYes,
};

struct HitReport {
  HitReportReading reading = HitReportReading::kNo;
  size_t events = 0;      // number of leading events in the report; 0 for kUnclear: unknown
  uint64_t blocks = 0;    // hashes in these events
  uint64_t compared = 0;  // hashes that were looked up
};

// The conclusions from the readings of one worker's stores.
class HitReportState {
 public:
  explicit HitReportState(HitReports reports) : reports_(reports) {}

  // True if the caller must read the worker's stores: the worker may send reports, and a reading
  // can still change the answers.
  bool must_read_stores() const {
    if (reports_ == HitReports::kNever) return false;
    return reports_ == HitReports::kUnknown ? !seen_ : !contradicted_;
  }
  // Records that the reading of a store of `stored` blocks compared `compared` blocks. False: the
  // readings cost more than kReadingShare blocks for each stored block, with a reserve of at most
  // kReadingCredit blocks. The caller must then use kUnclear as the reading.
  bool Affords(size_t stored, uint64_t compared) {
    credit_ = std::min(credit_ + kReadingShare * static_cast<int64_t>(stored), kReadingCredit);
    credit_ -= static_cast<int64_t>(compared);
    return credit_ >= 0;
  }

  // True if the index must not apply the report. The index leaves out reports (kYes, kMaybe) only
  // if the worker is registered to send them.
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
  // store that is a copy or a report. `block`: a fingerprint of a hash and a group. `held`:
  // the group held the block before the store.
  void NoteDoubtful(uint64_t block, bool held) {
    if (reports_ != HitReports::kUnknown) return;
    if (doubtful_.size() == kMaxDoubtful) seen_ = true;
    if (seen_) return;
    doubtful_.insert(block);
    if (!held) in_doubt_.insert(block);
  }
  bool has_doubtful() const { return !doubtful_.empty(); }
  // Must be called when a remove names the block. `last`: the index counts no further copy, so the
  // count is certain again. Otherwise, the index still counts a copy, and the engine may hold none.
  void NoteRemoved(uint64_t block, bool last) {
    if (!doubtful_.contains(block)) return;
    if (last) {
      doubtful_.erase(block);
      in_doubt_.erase(block);
    } else {
      in_doubt_.insert(block);
    }
  }
  // Must be called when a remove names a block that the index does not hold. Each block of a kMaybe
  // reading that was left out may be a copy, and may cause one such remove. A block of a kYes
  // reading causes none if the reading is right. If there are more such removes than kMaybe blocks,
  // a kYes reading was wrong. From then on, the index applies all stores.
  void NoteUnknownRemove() {
    if (reports_ == HitReports::kUnknown || (!seen_ && doubtful_blocks_ == 0)) return;
    if (doubtful_blocks_ == 0) contradicted_ = true;
    if (doubtful_blocks_ > 0) --doubtful_blocks_;
  }
  // Must be called when blocks come from the publisher's record, which counts reports as copies. A
  // block of the record may be a report of a block that the engine has evicted.
  void NoteRecord() {
    contradicted_ |= reports_ == HitReports::kExpected;
    seen_ |= reports_ == HitReports::kUnknown;
  }
  // Must be called when the GPU cache is empty.
  void Clear() {
    const int64_t credit = credit_;
    *this = HitReportState(reports_);
    credit_ = credit;
  }
  // Restore keeps the registered HitReports.
  void Save(FieldWriter& to) const;
  void Restore(FieldReader& from);
  // True if the counted copies are the copies that exist. If an engine is known to send reports,
  // this is assumed until `contradicted_` is set.
  bool certain() const {
    if (reports_ == HitReports::kUnknown) return !seen_ && in_doubt_.empty();
    return !contradicted_;
  }

 private:
  static constexpr size_t kMaxDoubtful = 4096;
  // A batch may have up to 64 consecutive stores at the root, one per group. Without these limits,
  // the last store could be compared again for each earlier store, so up to 64 times.
  static constexpr int64_t kReadingShare = 4;
  static constexpr int64_t kReadingCredit = int64_t{1} << 16;

  HitReports reports_;
  // A report was read (kYes). With HitReports::kUnknown, also: stores that may be reports were
  // applied, and their blocks are not in doubtful_.
  bool seen_ = false;
  // From now on, the index applies all stores, including reports.
  bool contradicted_ = false;
  uint64_t doubtful_blocks_ = 0;
  int64_t credit_ = kReadingCredit;  // blocks
  absl::flat_hash_set<uint64_t> doubtful_;
  absl::flat_hash_set<uint64_t> in_doubt_;  // subset of doubtful_: the engine may hold no copy
};

inline void HitReportState::Save(FieldWriter& to) const {
  to.Bool(seen_);
  to.Bool(contradicted_);
  to.Int(doubtful_blocks_);
  to.Int(doubtful_.size());
  for (const uint64_t block : doubtful_) {
    to.Fixed(block);
    to.Bool(in_doubt_.contains(block));
  }
}

inline void HitReportState::Restore(FieldReader& from) {
  seen_ = from.Bool();
  contradicted_ = from.Bool();
  doubtful_blocks_ = from.Int();
  for (size_t n = from.Int(kMaxDoubtful); n > 0 && from.ok(); --n) {
    const uint64_t block = from.Fixed();
    doubtful_.insert(block);
    if (from.Bool()) in_doubt_.insert(block);
  }
}

// Decides whether the leading events are a hit report. `holders`: the worker's GPU holders by
// group; kNoHolderId, or a group beyond the end: the worker holds no GPU block of the group.
// `config`: of the worker. `lookahead`: as WorkerRules::lookahead. If no group holds the last block
// of its store, the cost is at most one probe of the map per group.
HitReport ReadHitReport(std::span<const Event> events, std::span<const HolderId> holders,
                        const GroupRegistry& registry, const WorkerConfig& config,
                        int64_t lookahead, const ResidencyMap& map);

}  // namespace kvcast::router
