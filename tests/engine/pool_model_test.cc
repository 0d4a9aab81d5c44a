// The pool agrees with a naive pool made of plain lists on random operations.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

constexpr int64_t kHashBlockSize = 2;
constexpr int64_t kBlockSize = 6;
constexpr uint32_t kBlocks = 24;
constexpr int64_t kTokens = 60;

// A pool with the simplest code for each rule.
class NaivePool {
 public:
  NaivePool() {
    for (uint32_t i = 1; i < kBlocks; ++i) free_.push_back(i);
  }

  std::vector<uint32_t> Allocate(size_t n) {
    std::vector<uint32_t> taken(free_.begin(), free_.begin() + static_cast<ptrdiff_t>(n));
    free_.erase(free_.begin(), free_.begin() + static_cast<ptrdiff_t>(n));
    for (const uint32_t block : taken) {
      DropKeys(block);
      refs_[block] = 1;
    }
    return taken;
  }
  void Touch(uint32_t block) {
    if (block == 0) return;
    if (refs_[block]++ == 0) free_.erase(std::find(free_.begin(), free_.end(), block));
  }
  void Free(const std::vector<uint32_t>& blocks) {
    std::vector<uint32_t> front;
    for (const uint32_t block : blocks) {
      if (block == 0 || --refs_[block] > 0) continue;
      if (keys_[block].empty()) {
        front.push_back(block);
      } else {
        free_.push_back(block);
      }
    }
    free_.insert(free_.begin(), front.begin(), front.end());
  }
  // `units`: the key, as a number of hash units. `drop_shorter`: drops the keys of the block first
  // if they cover fewer units.
  void Cache(uint32_t block, uint32_t group, int64_t units, bool drop_shorter) {
    if (Has(block, group, units)) return;
    if (!keys_[block].empty() && (drop_shorter && keys_[block][0].second < units)) DropKeys(block);
    keys_[block].push_back({group, units});
    order_.push_back({block, {group, units}});
    ++stored_;
  }
  bool Has(uint32_t block, uint32_t group, int64_t units) const {
    const auto& keys = keys_[block];
    return std::find(keys.begin(), keys.end(), Key{group, units}) != keys.end();
  }
  void DropKeys(uint32_t block) {
    removed_ += static_cast<int64_t>(keys_[block].size());
    keys_[block].clear();
    std::erase_if(order_, [&](const auto& entry) { return entry.first == block; });
  }
  void Move(uint32_t from, uint32_t to) {
    keys_[to] = std::exchange(keys_[from], {});
    std::erase_if(order_, [&](const auto& entry) { return entry.first == from; });
    for (const Key& key : keys_[to]) order_.push_back({to, key});
  }
  std::optional<uint32_t> Find(uint32_t group, int64_t units) const {
    for (const auto& [block, key] : order_) {
      if (key == Key{group, units}) return block;
    }
    return std::nullopt;
  }
  bool Reset() {
    if (free_.size() != kBlocks - 1) return false;
    order_.clear();
    for (auto& keys : keys_) keys.clear();
    return true;
  }

  const std::vector<uint32_t>& free_list() const { return free_; }
  uint32_t refs(uint32_t block) const { return refs_[block]; }
  bool has_keys(uint32_t block) const { return !keys_[block].empty(); }
  int64_t primary_units(uint32_t block) const { return keys_[block].at(0).second; }
  int64_t stored() const { return stored_; }
  int64_t removed() const { return removed_; }

 private:
  using Key = std::pair<uint32_t, int64_t>;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> refs_ = std::vector<uint32_t>(kBlocks, 0);
  std::vector<std::vector<Key>> keys_ = std::vector<std::vector<Key>>(kBlocks);
  std::vector<std::pair<uint32_t, Key>> order_;
  int64_t stored_ = 0;
  int64_t removed_ = 0;
};

class RandomRun {
 public:
  explicit RandomRun(uint64_t seed)
      : random_(seed),
        request_(HashedRequest(kTokens, kHashBlockSize)),
        pool_(Pool(kBlocks, kHashBlockSize)) {}

  void Step() {
    switch (Pick(0, 7)) {
      case 0:
      case 1:
        return AllocateSome();
      case 2:
      case 3:
        return FreeSome();
      case 4:
        return CacheFull();
      case 5:
        return CachePartial();
      case 6:
        return TouchOrEvict();
      default:
        return MoveOrReset();
    }
  }

  void Compare() {
    ASSERT_EQ(ToIds(pool_.FreeList()), naive_.free_list());
    for (uint32_t block = 1; block < kBlocks; ++block) {
      ASSERT_EQ(pool_.ref_count(BlockId(block)), naive_.refs(block));
    }
    for (uint32_t group = 0; group < 2; ++group) {
      for (size_t i = 0; i < request_.chain.size(); ++i) {
        const auto found = pool_.FindCached(request_.chain[i], GroupIdx(group));
        const auto expected = naive_.Find(group, static_cast<int64_t>(i) + 1);
        ASSERT_EQ(found.has_value(), expected.has_value());
        ASSERT_EQ(found.value_or(kNullBlock).value, expected.value_or(0));
      }
    }
    for (const Event& event : TakeEvents(pool_)) Count(event);
    ASSERT_EQ(stored_, naive_.stored());
    ASSERT_EQ(removed_, naive_.removed());
    const Status status = pool_.CheckInvariants();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

 private:
  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  void Count(const Event& event) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      stored_ += static_cast<int64_t>(stored->block_hashes.size());
    }
    if (std::holds_alternative<BlockRemoved>(event)) ++removed_;
  }
  std::optional<uint32_t> AnyHeld() {
    std::vector<uint32_t> held;
    for (uint32_t block = 1; block < kBlocks; ++block) {
      if (naive_.refs(block) > 0) held.push_back(block);
    }
    if (held.empty()) return std::nullopt;
    return held[static_cast<size_t>(Pick(0, static_cast<int64_t>(held.size()) - 1))];
  }

  void AllocateSome() {
    const int64_t n = Pick(0, std::min<int64_t>(4, pool_.num_free()));
    std::vector<BlockId> taken;
    pool_.Allocate(n, taken);
    ASSERT_EQ(ToIds(taken), naive_.Allocate(static_cast<size_t>(n)));
  }
  void FreeSome() {
    Ids blocks = {0};
    for (uint32_t block = 1; block < kBlocks; ++block) {
      if (naive_.refs(block) > 0 && Pick(0, 2) == 0) blocks.push_back(block);
    }
    std::shuffle(blocks.begin(), blocks.end(), random_);
    pool_.Free(ToBlocks(blocks));
    naive_.Free(blocks);
  }
  void CacheFull() {
    const auto block = AnyHeld();
    if (!block) return;
    const auto index = Pick(0, kTokens / kBlockSize - 1);
    const auto group = static_cast<uint32_t>(Pick(0, 1));
    const int64_t units = (index + 1) * kBlockSize / kHashBlockSize;
    // A block that already covers this number of units is never cached again.
    if (naive_.has_keys(*block) && naive_.primary_units(*block) >= units) return;
    std::vector<BlockId> table(static_cast<size_t>(index) + 1, BlockId(*block));
    pool_.CacheFullBlocks({request_, GroupIdx(group), kBlockSize, table, index, index + 1});
    naive_.Cache(*block, group, units, true);
  }
  void CachePartial() {
    const auto block = AnyHeld();
    if (!block) return;
    const auto group = static_cast<uint32_t>(Pick(0, 1));
    const int64_t units = Pick(1, kTokens / kHashBlockSize);
    const auto key = pool_.CachePartialBlock(
        {request_, GroupIdx(group), BlockId(*block), units * kHashBlockSize});
    if (key) naive_.Cache(*block, group, units, true);
  }
  void TouchOrEvict() {
    const BlockId block(static_cast<uint32_t>(Pick(0, kBlocks - 1)));
    if (Pick(0, 3) == 0) {
      pool_.Evict({&block, 1});
      naive_.DropKeys(block.value);
      return;
    }
    pool_.Touch({&block, 1});
    naive_.Touch(block.value);
  }
  void MoveOrReset() {
    if (Pick(0, 9) == 0) {
      ASSERT_EQ(pool_.Reset(), naive_.Reset());
      return;
    }
    const auto from = AnyHeld();
    const auto to = AnyHeld();
    if (!from || from == to || naive_.has_keys(*to)) return;
    pool_.MoveKeys(BlockId(*from), BlockId(*to));
    naive_.Move(*from, *to);
  }

  std::mt19937_64 random_;
  CacheRequest request_;
  BlockPool pool_;
  NaivePool naive_;
  int64_t stored_ = 0;
  int64_t removed_ = 0;
};

TEST(PoolModel, AgreesWithPlainListsOnRandomOperations) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomRun run(seed);
    for (int step = 0; step < 300; ++step) {
      run.Step();
      run.Compare();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace kvcast::engine
