// SavedIndex: the workers of an index, saved in memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "router/index/index_image.h"

namespace kvcast::sim {

class SavedIndex {
 public:
  SavedIndex(const PrefixIndex& index, std::vector<WorkerId> workers)
      : workers_(std::move(workers)) {
    for (size_t shard = 0; shard < index.shards(); ++shard) {
      shards_.emplace_back();
      Shard& saved = shards_.back();
      router::IndexImage::Freeze(index, shard, workers_, [&](const router::FrozenShard& frozen) {
        saved.learned = frozen.learned();
        std::array<uint8_t, 100> buffer{};
        router::ImageSink sink(buffer, [&saved](std::span<const uint8_t> bytes) {
          saved.runs.insert(saved.runs.end(), bytes.begin(), bytes.end());
        });
        frozen.WriteRuns(sink);
        sink.FlushAll();
      });
    }
  }

  // Restores a worker of the list. `index` may have another number of shards than the saved index.
  Status Restore(PrefixIndex& index, WorkerId worker) const {
    const auto index_in_list = std::ranges::find(workers_, worker) - workers_.begin();
    const auto number = static_cast<uint32_t>(index_in_list);
    for (const Shard& saved : shards_) {
      if (saved.learned[number].empty()) continue;
      FieldReader reader(saved.runs);
      return router::IndexImage::Restore(
          index, worker, number, saved.learned[number],
          [&reader](router::RunImage& run) { return !reader.AtEnd() && run.Read(reader); });
    }
    return {StatusCode::kNotFound, "the worker was not saved"};
  }

  struct Shard {
    std::vector<std::vector<uint8_t>> learned;
    std::vector<uint8_t> runs;
  };
  std::vector<Shard>& shards() { return shards_; }

 private:
  std::vector<WorkerId> workers_;
  std::vector<Shard> shards_;
};

}  // namespace kvcast::sim
