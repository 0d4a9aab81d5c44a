// Mirror: what a publisher's batches say that its engine holds, so that a snapshot of it can be
// given.
//
// Keeps hashes, parents, block sizes and copies; token ids, adapters and extra keys are not kept.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kvcast/core/event.h"
#include "kvcast/residency/residency_digest.h"

namespace kvcast::residency {

// Groups above are not mirrored; no index holds them.
inline constexpr int64_t kMaxGroup = 63;

struct MirrorEntry {
  uint32_t copies = 0;
  uint32_t block_size = 0;
  bool at_root = true;
  BlockHash parent;  // unless at the root
};

// The part of a batch that Mirror::Apply reads: the rest of it makes no difference there.
EventBatch MirroredPart(const EventBatch& batch);

// Thread-compatible.
class Mirror {
 public:
  Mirror();
  ~Mirror();

  void Apply(const EventBatch& batch);
  // Forgets everything.
  void Clear();

  const ResidencyDigest& digest() const { return digest_; }
  uint64_t blocks() const;  // distinct (tier, group, hash)
  uint64_t unknown_removes() const { return unknown_removes_; }

  // Calls `visit(shape)` for each place that holds something: a store without blocks that names
  // medium, group and kind as the place's latest store did.
  void ForEachPlace(const std::function<void(const BlockStored& shape)>& visit) const;
  // All that the place of `shape` holds, in no order.
  void ForEachBlock(const BlockStored& shape,
                    const std::function<void(const BlockHash&, const MirrorEntry&)>& visit) const;
  // nullptr: not held there. Borrowed until the next change.
  const MirrorEntry* Find(const BlockStored& shape, const BlockHash& hash) const;

 private:
  struct Places;
  void Store(const BlockStored& event);
  void Remove(const BlockRemoved& event);

  std::unique_ptr<Places> places_;
  ResidencyDigest digest_;
  uint64_t unknown_removes_ = 0;
};

}  // namespace kvcast::residency
