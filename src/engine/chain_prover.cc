// SPDX-License-Identifier: Apache-2.0
#include "kvcast/engine/chain_prover.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/hash/chain_challenge.h"
#include "src/base/mutex.h"

namespace kvcast {
namespace {

// Only the blocks of groups that take part in prefix caching hold whole hash units. If no group
// takes part, the result is group 0.
GroupIdx GroupOfSmallestBlocks(const CacheConfig& config) {
  const auto size = [](const GroupSpec& group) {
    return TakesPart(group) ? group.block_size : std::numeric_limits<int64_t>::max();
  };
  const auto smallest = std::ranges::min_element(config.groups, {}, size);
  return GroupIdx(static_cast<uint32_t>(smallest - config.groups.begin()));
}

// Without caching, a hash unit may be larger than the blocks.
int64_t BlockSizeOf(const CacheConfig& config, GroupIdx group) {
  const GroupSpec& spec = config.groups[group.value];
  return config.enable_caching && TakesPart(spec) ? spec.block_size : config.hash_block_size;
}

}  // namespace

class ChainProver::Impl {
 public:
  Impl(const CacheConfig& config, BlockHasher hasher, const EventOptions& events)
      : scheme_{.hash_block_size = config.hash_block_size,
                .form = config.chain_form,
                .event_form = events.hash_form},
        group_(GroupOfSmallestBlocks(config)),
        block_size_(BlockSizeOf(config, group_)),
        hasher_(std::move(hasher)) {}

  EventBatch Answer(uint64_t nonce) {
    EventBatch answer;
    for (const HashInputs& inputs : ChallengeInputs(nonce, scheme_.hash_block_size)) {
      // With tagged keys the hash covers the path of the adapter, and no event carries a path.
      const bool tagged = scheme_.form.extra_keys == ExtraKeyScheme::kTagged;
      if (tagged && !inputs.lora_name.empty()) continue;
      answer.events.emplace_back(StoreOf(nonce, inputs));
    }
    return answer;
  }

 private:
  BlockStored StoreOf(uint64_t nonce, const HashInputs& inputs) {
    const int64_t size = inputs.empty() ? block_size_ : scheme_.hash_block_size;
    const MutexLock lock(mutex_);
    BlockStored store = ChallengeStore(nonce, size, inputs, scheme_, hasher_);
    store.group_idx = group_.value;
    return store;
  }

  const ChallengeScheme scheme_;
  const GroupIdx group_;
  const int64_t block_size_;
  Mutex mutex_;
  BlockHasher hasher_ KV_GUARDED_BY(mutex_);
};

Result<std::unique_ptr<ChainProver>> ChainProver::Create(CacheConfig config, BlockHasher hasher,
                                                         const EventOptions& events) {
  const auto valid = ValidateCacheConfig(std::move(config));
  if (!valid.ok()) return valid.status();
  return std::unique_ptr<ChainProver>(
      new ChainProver(std::make_unique<Impl>(*valid, std::move(hasher), events)));
}

ChainProver::ChainProver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChainProver::~ChainProver() = default;

EventBatch ChainProver::Answer(uint64_t nonce) { return impl_->Answer(nonce); }

}  // namespace kvcast
