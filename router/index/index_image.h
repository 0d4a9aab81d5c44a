// IndexImage: saves the blocks of a PrefixIndex, with everything that the index has learned about
// their workers, and restores them into another index with the same content keys.
//
// Not saved: counters of events, stores that wait for the name of the block before them, samples of
// prompts, and unfinished evidence of reuse. After Restore, the blocks of waiting stores stay
// unnamed, and no new evidence is collected until the worker's GPU cache is cleared.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"
#include "router/index/run_image.h"

namespace kvcast::router {

class ResidencyMap;

// The workers of one shard while no writer changes the shard.
class FrozenShard {
 public:
  // The learned properties, by position in the argument `workers` of Freeze. Empty: the worker is
  // not registered in this shard.
  const std::vector<std::vector<uint8_t>>& learned() const { return learned_; }
  // Writes the runs of blocks that the workers hold. ImageHolder::worker is the position in the
  // argument `workers` of Freeze. The call allocates no memory and takes no lock, so a forked child
  // may make it.
  void WriteRuns(ImageSink& sink) const;

 private:
  friend class kvcast::PrefixIndex;
  static constexpr uint64_t kNotSaved = std::numeric_limits<uint64_t>::max();

  explicit FrozenShard(const ResidencyMap& map) : map_(map) {}
  template <typename Store, typename Part>
  void WriteRun(BlockHash::Form form, const Store& store, const Part& part, ImageSink& sink) const;
  template <typename Visit, typename Part>
  void ForEachHolder(const Part& part, Visit&& visit) const;

  const ResidencyMap& map_;
  std::vector<uint64_t> numbers_;  // by HolderId: ImageHolder::Packed, or kNotSaved
  std::vector<std::vector<uint8_t>> learned_;
};

class IndexImage {
 public:
  // Calls `use` while no writer changes the shard. Waits for the batches in progress. The
  // FrozenShard is valid until `use` returns. `use` must not call the index.
  static void Freeze(const PrefixIndex& index, size_t shard, std::span<const WorkerId> workers,
                     const std::function<void(const FrozenShard&)>& use);
  // Makes room in the tables of the index for images of this size, so that Restore is faster. If
  // the room is not used, PrefixIndex::Reclaim frees it.
  static void Reserve(PrefixIndex& index, const ImageSize& size);
  // Restores a worker that has no blocks. `number`: the ImageHolder::worker of this worker in the
  // image. `next_run` sets the next run, or returns false after the last run. Takes the lock of the
  // worker's shard several times. Thread-safe for different workers. Not ok (kMalformed): the image
  // is damaged, or does not fit the registration of the worker; the worker then has no blocks.
  // kNotFound: the worker is not registered.
  static Status Restore(PrefixIndex& index, WorkerId worker, uint32_t number,
                        std::span<const uint8_t> learned,
                        const std::function<bool(RunImage&)>& next_run);
};

}  // namespace kvcast::router
