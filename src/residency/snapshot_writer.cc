// SPDX-License-Identifier: Apache-2.0
#include "src/residency/snapshot_writer.h"

#include <algorithm>
#include <bit>
#include <ranges>
#include <span>
#include <utility>

#include "src/base/check.h"

namespace kvcast::residency {
namespace {

// The batches under construction.
class Batches {
 public:
  explicit Batches(const SnapshotOptions& options) : options_(options) {}

  void Add(const BlockStored& run) {
    if (hashes_ + run.block_hashes.size() > kSnapshotBatchHashes) Flush();
    hashes_ += run.block_hashes.size();
    batch_.events.emplace_back(run);
  }
  std::vector<Payload> Take() {
    Flush();
    return std::move(payloads_);
  }

 private:
  void Flush() {
    if (batch_.events.empty()) return;
    batch_.ts = options_.ts;
    batch_.data_parallel_rank = options_.data_parallel_rank;
    std::vector<uint8_t> payload;
    // Every entry of the mirror was decoded from a batch, so it can be encoded.
    KV_CHECK(EncodeBatch(batch_, options_.dialect, payload).ok());
    payloads_.push_back(std::make_shared<const std::vector<uint8_t>>(std::move(payload)));
    batch_.events.clear();
    hashes_ = 0;
  }

  const SnapshotOptions& options_;
  EventBatch batch_;
  size_t hashes_ = 0;
  std::vector<Payload> payloads_;
};

// Writes the chains of a group on a tier.
class GroupTierWriter {
 public:
  GroupTierWriter(const Mirror& mirror, const BlockStored& shape, const BucketMask& buckets,
                  Batches& out)
      : shape_(shape), whole_(buckets.all()), out_(out) {
    mirror.ForEachBlock(shape, [&](const BlockHash& hash, const MirrorEntry& entry) {
      if (whole_ || buckets.test(DigestBucketOf(hash))) blocks_.push_back({Key(hash), &entry});
    });
    // The order in memory is arbitrary. Sorting by hash gives equal snapshots for equal mirrors.
    std::sort(blocks_.begin(), blocks_.end(),
              [](const Block& a, const Block& b) { return a.key < b.key; });
    if (!whole_) return;
    NoteBegins();
    for (Block& block : blocks_)
      block.parent = block.entry->at_root ? nullptr : FindBlock(block.entry->parent);
    for (const Block& block : blocks_) {
      if (block.parent != nullptr) block.parent->has_child = true;
    }
  }

  // The chains that end in leaves come first, so that each store event is as long as possible. The
  // blocks that then remain form cycles.
  void Write() {
    if (!whole_) return WriteUnchained();
    for (Block& block : blocks_) {
      if (!block.has_child) WriteChainTo(block);
    }
    for (Block& block : blocks_) WriteChainTo(block);
  }

 private:
  // A hash, and what decides its order without a read of the hash. The hashes lie far from each
  // other in memory. An integer decides the order; of a byte string, the first 8 bytes mostly do.
  class Key {
   public:
    explicit Key(const BlockHash& hash) : hash_(&hash), form_(hash.form()), first_(FirstOf(hash)) {}
    const BlockHash& hash() const { return *hash_; }
    // Keys with a smaller index are smaller.
    size_t Index(int bits) const {
      return static_cast<size_t>(form_) << bits | static_cast<size_t>(first_ >> (64 - bits));
    }

    friend bool operator<(const Key& a, const Key& b) {
      if (a.form_ != b.form_) return a.form_ < b.form_;
      if (a.first_ != b.first_ || a.form_ != BlockHash::Form::kBytes) return a.first_ < b.first_;
      return std::ranges::lexicographical_compare(a.hash_->bytes(), b.hash_->bytes());
    }

   private:
    static uint64_t FirstOf(const BlockHash& hash) {
      if (!hash.is_bytes()) return hash.integer();
      uint64_t first = 0;
      const std::span<const uint8_t> bytes = hash.bytes();
      for (size_t i = 0; i < sizeof(first); ++i)
        first = first << 8 | (i < bytes.size() ? bytes[i] : 0);
      return first;
    }

    const BlockHash* hash_;
    BlockHash::Form form_;
    uint64_t first_;
  };
  static constexpr size_t kForms = 3;  // of hashes
  struct Block {
    Key key;
    const MirrorEntry* entry = nullptr;
    Block* parent = nullptr;
    bool has_child = false;
    bool written = false;
  };

  // Most hashes are uniform, so few blocks have the same index.
  void NoteBegins() {
    index_bits_ = std::max<int>(1, std::bit_width(blocks_.size()) - 3);
    begins_.reserve((kForms << index_bits_) + 1);
    for (size_t at = 0; at < blocks_.size(); ++at)
      begins_.resize(blocks_[at].key.Index(index_bits_) + 1, at);
    begins_.resize((kForms << index_bits_) + 1, blocks_.size());
  }

  Block* FindBlock(const BlockHash& hash) {
    const Key key(hash);
    const size_t index = key.Index(index_bits_);
    Block* const end = blocks_.data() + begins_[index + 1];
    Block* const it =
        std::lower_bound(blocks_.data() + begins_[index], end, key,
                         [](const Block& block, const Key& value) { return block.key < value; });
    return it != end && it->key.hash() == hash ? it : nullptr;
  }

  // Writes the blocks without their parents. Most parents are in other buckets, so chains would
  // have one block each.
  void WriteUnchained() {
    std::sort(blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) {
      const std::pair of_a(a.entry->copies, a.entry->block_size);
      const std::pair of_b(b.entry->copies, b.entry->block_size);
      return of_a != of_b ? of_a < of_b : a.key < b.key;
    });
    chain_.clear();
    for (Block& block : blocks_ | std::views::reverse) chain_.push_back(&block);
    WriteRuns();
  }

  void WriteChainTo(Block& last) {
    chain_.clear();
    for (Block* block = &last; block != nullptr && !block->written; block = block->parent) {
      block->written = true;
      chain_.push_back(block);
    }
    WriteRuns();
  }

  // Writes the blocks of chain_, in which the last block comes first.
  void WriteRuns() {
    for (auto block = chain_.rbegin(); block != chain_.rend();) {
      auto end = block;
      while (end != chain_.rend() && SameRun(**block, **end) &&
             end - block < static_cast<std::ptrdiff_t>(kSnapshotBatchHashes)) {
        ++end;
      }
      WriteRun(block, end);
      block = end;
    }
  }

  static bool SameRun(const Block& a, const Block& b) {
    return a.entry->copies == b.entry->copies && a.entry->block_size == b.entry->block_size;
  }

  template <typename It>
  void WriteRun(const It& begin, const It& end) {
    BlockStored run = shape_;
    run.block_size = (*begin)->entry->block_size;
    if (whole_ && !(*begin)->entry->at_root) run.parent_block_hash = (*begin)->entry->parent;
    run.token_ids.emplace();
    for (It it = begin; it != end; ++it) run.block_hashes.push_back((*it)->key.hash());
    for (uint32_t copy = 0; copy < (*begin)->entry->copies; ++copy) out_.Add(run);
  }

  const BlockStored& shape_;
  const bool whole_;
  Batches& out_;
  std::vector<Block> blocks_;
  int index_bits_ = 0;
  // By index: the position of the first block that has this index or a larger one.
  std::vector<size_t> begins_;
  std::vector<Block*> chain_;
};

}  // namespace

std::vector<Payload> WriteSnapshot(const Mirror& mirror, const SnapshotOptions& options) {
  Batches out(options);
  mirror.ForEachGroupTier([&](const BlockStored& shape) {
    GroupTierWriter(mirror, shape, options.buckets, out).Write();
  });
  return out.Take();
}

}  // namespace kvcast::residency
