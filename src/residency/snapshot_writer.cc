// SPDX-License-Identifier: Apache-2.0
#include "src/residency/snapshot_writer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>
#include <utility>

#include "src/base/check.h"

namespace kvcast::residency {
namespace {

// Maximum number of items that a step visits: blocks, or values of Key::Index.
constexpr size_t kStepBlocks = 8192;
constexpr size_t kForms = 3;  // number of values of BlockHash::Form
// Upper limit of the mean number of blocks with the same index; see GroupTierWriter.
constexpr size_t kBlocksPerIndex = 8;

// The batches under construction.
class Batches {
 public:
  explicit Batches(const SnapshotOptions& options) : options_(options) {}

  const SnapshotOptions& options() const { return options_; }
  void Add(const BlockStored& run) {
    if (hashes_ + run.block_hashes.size() > kSnapshotBatchHashes) Flush();
    hashes_ += run.block_hashes.size();
    batch_.events.emplace_back(run);
  }
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
  // Moves the finished batches to `out`.
  void TakeFinished(std::vector<Payload>& out) {
    std::ranges::move(payloads_, std::back_inserter(out));
    payloads_.clear();
  }

 private:
  const SnapshotOptions options_;
  EventBatch batch_;
  size_t hashes_ = 0;
  std::vector<Payload> payloads_;
};

// A hash, with a copy of its integer or of the first 8 bytes of its byte string. Comparisons use
// the copy, and rarely read the hash.
class Key {
 public:
  explicit Key(const BlockHash& hash) : hash_(&hash), first_(FirstOf(hash)), form_(hash.form()) {}
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
  uint64_t first_;
  BlockHash::Form form_;
};

struct Block {
  explicit Block(const MirrorCopy::Block& copied) : key(copied.hash), entry(&copied.entry) {}
  Key key;
  const MirrorEntry* entry;
  Block* parent = nullptr;
  bool has_child = false;
  bool written = false;
};

// Writes the blocks of one group on one tier in the order of their hashes, so that equal mirrors
// give equal snapshots. The writer counts the blocks by index (Key::Index), places the blocks in
// the order of the indices, and sorts the blocks of each index. Most hashes are uniform, so few
// blocks have the same index.
class GroupTierWriter {
 public:
  // Both arguments must outlive the writer.
  GroupTierWriter(const MirrorCopy::GroupTier& group_tier, Batches& out)
      : shape_(group_tier.shape),
        copied_(group_tier.blocks),
        whole_(out.options().buckets.all()),
        out_(out),
        index_bits_(std::max<int>(1, std::bit_width(copied_.size() / kBlocksPerIndex))) {
    KV_CHECK(copied_.size() <= std::numeric_limits<uint32_t>::max());
    ends_.resize(kForms << index_bits_);
  }

  // Does the next step. False: all blocks are written.
  bool Step() {
    switch (phase_) {
      case Phase::kCount:
        if (Visit(copied_.size(), [this](size_t i) { ++ends_[IndexOf(copied_[i])]; })) BeginPlace();
        break;
      case Phase::kPlace:
        if (Visit(copied_.size(), [this](size_t i) {
              order_[ends_[IndexOf(copied_[i])]++] = static_cast<uint32_t>(i);
            }))
          BeginSort();
        break;
      case Phase::kSort:
        if (Visit(ends_.size(), [this](size_t index) { SortIndex(index); })) EndSort();
        break;
      case Phase::kParents:
        if (Visit(blocks_.size(), [this](size_t i) { NoteParent(blocks_[i]); }))
          phase_ = Phase::kLeaves;
        break;
      // The chains that end in leaves come first, so that each store event is as long as possible.
      // The blocks that then remain form cycles.
      case Phase::kLeaves:
        if (Visit(blocks_.size(), [this](size_t i) {
              if (!blocks_[i].has_child) WriteChainTo(blocks_[i]);
            }))
          phase_ = Phase::kCycles;
        break;
      case Phase::kCycles:
        if (Visit(blocks_.size(), [this](size_t i) { WriteChainTo(blocks_[i]); }))
          phase_ = Phase::kDone;
        break;
      case Phase::kAlike:
        if (Visit(blocks_.size(), [this](size_t i) { NoteAlike(blocks_[i]); }))
          phase_ = Phase::kRuns;
        break;
      case Phase::kRuns:
        if (!WriteAlike()) phase_ = Phase::kDone;
        break;
      case Phase::kDone:
        break;
    }
    return phase_ != Phase::kDone;
  }

 private:
  enum class Phase : uint8_t {
    kCount,
    kPlace,
    kSort,
    // The next three phases run if the snapshot has all buckets.
    kParents,
    kLeaves,
    kCycles,
    // The next two phases run if buckets are left out. Most parents are then in other buckets, so
    // most chains would have only one block.
    kAlike,
    kRuns,
    kDone,
  };
  using Chain = std::vector<const Block*>;
  using Alike = std::pair<uint32_t, uint32_t>;  // copies, block size

  // Calls `visit` for the next items of [0, size). True: no item is left; the next call begins with
  // item 0.
  template <typename Visitor>
  bool Visit(size_t size, const Visitor& visit) {
    const size_t end = std::min(size, next_item_ + kStepBlocks);
    for (; next_item_ < end; ++next_item_) visit(next_item_);
    if (next_item_ < size) return false;
    next_item_ = 0;
    return true;
  }

  size_t IndexOf(const MirrorCopy::Block& block) const {
    return Key(block.hash).Index(index_bits_);
  }
  size_t BeginOf(size_t index) const { return index == 0 ? 0 : ends_[index - 1]; }

  // Replaces each count in ends_ by the position where the blocks of the index begin. For each
  // block, Phase::kPlace then adds 1 to the position of the block's index. After that phase, ends_
  // has the ends.
  void BeginPlace() {
    std::exclusive_scan(ends_.begin(), ends_.end(), ends_.begin(), uint32_t{0});
    order_.resize(copied_.size());
    phase_ = Phase::kPlace;
  }
  void BeginSort() {
    blocks_.reserve(copied_.size());
    phase_ = Phase::kSort;
  }
  void SortIndex(size_t index) {
    for (size_t i = BeginOf(index); i < ends_[index]; ++i) blocks_.emplace_back(copied_[order_[i]]);
    std::sort(blocks_.begin() + static_cast<std::ptrdiff_t>(BeginOf(index)), blocks_.end(),
              [](const Block& a, const Block& b) { return a.key < b.key; });
  }
  void EndSort() {
    order_ = {};
    phase_ = whole_ ? Phase::kParents : Phase::kAlike;
  }

  void NoteParent(Block& block) {
    if (block.entry->at_root) return;
    block.parent = FindBlock(block.entry->parent);
    if (block.parent != nullptr) block.parent->has_child = true;
  }

  Block* FindBlock(const BlockHash& hash) {
    const Key key(hash);
    const size_t index = key.Index(index_bits_);
    Block* const end = blocks_.data() + ends_[index];
    Block* const it =
        std::lower_bound(blocks_.data() + BeginOf(index), end, key,
                         [](const Block& block, const Key& value) { return block.key < value; });
    return it != end && it->key.hash() == hash ? it : nullptr;
  }

  void WriteChainTo(Block& last) {
    if (last.written) return;
    chain_.clear();
    for (Block* block = &last; block != nullptr && !block->written; block = block->parent) {
      block->written = true;
      chain_.push_back(block);
    }
    std::ranges::reverse(chain_);
    for (size_t begin = 0; begin < chain_.size();) begin = WriteRun(chain_, begin);
  }

  static Alike AlikeOf(const Block& block) {
    return {block.entry->copies, block.entry->block_size};
  }
  void NoteAlike(const Block& block) { alike_[AlikeOf(block)].push_back(&block); }
  // Writes the next blocks of alike_. False: no block is left.
  bool WriteAlike() {
    const auto chain = alike_.begin();
    if (chain == alike_.end()) return false;
    next_item_ = WriteRun(chain->second, next_item_);
    if (next_item_ < chain->second.size()) return true;
    next_item_ = 0;
    alike_.erase(chain);
    return true;
  }

  // Writes the longest run of the chain that begins at `begin`. Returns the end of the run.
  size_t WriteRun(const Chain& chain, size_t begin) {
    const Block& first = *chain[begin];
    BlockStored run = shape_;
    run.block_size = first.entry->block_size;
    if (whole_ && !first.entry->at_root) run.parent_block_hash = first.entry->parent;
    run.token_ids.emplace();
    size_t end = begin;
    for (; end < chain.size() && end - begin < kSnapshotBatchHashes; ++end) {
      if (AlikeOf(*chain[end]) != AlikeOf(first)) break;
      run.block_hashes.push_back(chain[end]->key.hash());
    }
    for (uint32_t copy = 0; copy < first.entry->copies; ++copy) out_.Add(run);
    return end;
  }

  const BlockStored& shape_;
  const std::vector<MirrorCopy::Block>& copied_;
  const bool whole_;
  Batches& out_;
  const int index_bits_;
  Phase phase_ = Phase::kCount;
  size_t next_item_ = 0;         // of the phase
  std::vector<uint32_t> ends_;   // by index: the end of its blocks in order_ and blocks_
  std::vector<uint32_t> order_;  // positions in copied_, in the order of the indices
  std::vector<Block> blocks_;    // in the order of the hashes
  Chain chain_;
  std::map<Alike, Chain> alike_;
};

}  // namespace

class SnapshotWriter::Impl {
 public:
  Impl(MirrorCopy copy, const SnapshotOptions& options)
      : batches_(options), copy_(std::move(copy)) {}

  bool Step(std::vector<Payload>& out) {
    const bool more = Step();
    if (!more) batches_.Flush();
    batches_.TakeFinished(out);
    return more;
  }

 private:
  bool Step() {
    if (next_ == copy_.group_tiers.size()) return false;
    if (!writer_) writer_.emplace(copy_.group_tiers[next_], batches_);
    if (writer_->Step()) return true;
    writer_.reset();
    copy_.group_tiers[next_].blocks = {};
    return ++next_ < copy_.group_tiers.size();
  }

  Batches batches_;
  MirrorCopy copy_;
  size_t next_ = 0;  // index of the group on a tier that is being written
  std::optional<GroupTierWriter> writer_;
};

SnapshotWriter::SnapshotWriter(MirrorCopy copy, const SnapshotOptions& options)
    : impl_(std::make_unique<Impl>(std::move(copy), options)) {}
SnapshotWriter::~SnapshotWriter() = default;
bool SnapshotWriter::Step(std::vector<Payload>& out) { return impl_->Step(out); }

std::vector<Payload> WriteSnapshot(const Mirror& mirror, const SnapshotOptions& options) {
  std::vector<Payload> parts;
  SnapshotWriter writer(mirror.Copy(options.buckets), options);
  while (writer.Step(parts)) {
  }
  return parts;
}

}  // namespace kvcast::residency
