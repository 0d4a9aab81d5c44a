// ResidencyBudget: bounds the residencies of all sources together. (A residency is a block in a
// group on a tier of one source; see IndexCounters::residencies.)
//
// An equal part is the bound divided by the number of sources. If the sum is above the bound, the
// router drops all blocks of each source with more than an equal part at the next batch of the
// source. While the sum is above the bound, at least one source has more than an equal part. A
// source that sends nothing keeps its blocks, so the sum can exceed the bound. If no source is
// added, the sum stays below twice the bound, plus the growth of one batch of each source. Reason:
// take the sources that have more than an equal part and send nothing. When the last of these
// sources grew, the sum was below the bound. Each other source has at most an equal part, so the
// other sources have at most the bound together. Each added source makes the equal part smaller, so
// the sum can then be larger. Example: n sources are added one after the other, and each of them
// grows to an equal part and then sends nothing. The sum is then the bound times
// 1 + 1/2 + ... + 1/n.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace kvcast::router {

// MaxResidencies counts at most this number of groups.
inline constexpr size_t kMaxCountedGroups = 16;

// The maximum number of residencies of one source. `configured`: its max_residencies; 0: none is
// set. `groups`: the number of groups in its events.
uint64_t MaxResidencies(int64_t configured, size_t groups);

// Thread-safe.
class ResidencyBudget {
 public:
  // `max` 0: no bound.
  explicit ResidencyBudget(uint64_t max) : max_(max) {}

  uint64_t total() const { return total_; }

  // The residencies of one source. Thread-compatible.
  class Share {
   public:
    // `budget` may be nullptr: no bound.
    explicit Share(std::shared_ptr<ResidencyBudget> budget);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Notes the current number of residencies of the source. True: the blocks of the source must be
    // dropped.
    bool Note(uint64_t residencies);

   private:
    const std::shared_ptr<ResidencyBudget> budget_;
    uint64_t noted_ = 0;
  };

 private:
  const uint64_t max_;
  std::atomic<uint64_t> total_{0};
  std::atomic<uint64_t> sources_{0};
};

}  // namespace kvcast::router
