// SPDX-License-Identifier: Apache-2.0
#include "kvcast/engine/chain_prover.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/hash/chain_challenge.h"
#include "src/base/mutex.h"
#include "src/engine/event_log.h"

namespace kvcast {
namespace {

// Only the blocks of groups that take part in prefix caching hold whole hash units. If no group
// takes part, group 0 stands for the engine.
GroupIdx SmallestBlocks(const CacheConfig& config) {
  const auto size = [](const GroupSpec& group) {
    return TakesPart(group) ? group.block_size : std::numeric_limits<int64_t>::max();
  };
  const auto smallest = std::ranges::min_element(config.groups, {}, size);
  return GroupIdx(static_cast<uint32_t>(smallest - config.groups.begin()));
}

int64_t BlockSizeOf(const CacheConfig& config, GroupIdx group) {
  const GroupSpec& spec = config.groups[group.value];
  return TakesPart(spec) ? spec.block_size : config.hash_block_size;
}

}  // namespace

class ChainProver::Impl {
 public:
  Impl(const CacheConfig& config, BlockHasher hasher, const EventOptions& events)
      : form_(config.chain_form),
        hash_block_size_(config.hash_block_size),
        group_(SmallestBlocks(config)),
        block_size_(BlockSizeOf(config, group_)),
        events_({.hash_form = events.hash_form}, kMediumGpu, config.chain_form.lookahead),
        hasher_(std::move(hasher)) {}

  EventBatch Answer(uint64_t nonce) {
    const std::string text = ChallengeText(nonce);
    std::vector<HashInputs> keyed(2);
    keyed[0].cache_salt = text;
    keyed[1].mm_items = {{.identifier = text, .offset = 0, .length = hash_block_size_}};
    // With tagged keys the hash covers the path of the adapter, and no event carries a path.
    if (form_.extra_keys == ExtraKeyScheme::kBare) keyed.emplace_back().lora_name = text;
    EventBatch answer;
    answer.events.emplace_back(StoreOf(nonce, block_size_, {}));
    for (HashInputs& inputs : keyed) {
      answer.events.emplace_back(StoreOf(nonce, hash_block_size_, std::move(inputs)));
    }
    return answer;
  }

 private:
  BlockStored StoreOf(uint64_t nonce, int64_t block_size, HashInputs inputs) {
    CacheRequest request;
    request.tokens = ChallengeTokens(nonce, static_cast<size_t>(block_size + form_.lookahead));
    request.hash_inputs = std::move(inputs);
    std::vector<Digest> chain;
    {
      const MutexLock lock(mutex_);
      hasher_.ExtendChain(request.tokens, hash_block_size_, request.hash_inputs, chain, form_);
    }
    const int64_t begin = 0;
    const Digest* const digest = &BlockDigest(chain, 0, block_size / hash_block_size_);
    BlockStored event;
    events_.Describe({.request = request,
                      .group = group_,
                      .block_size = block_size,
                      .begin_token = 0,
                      .end_token = block_size,
                      .parent = nullptr,
                      .block_begins = {&begin, 1},
                      .digests = {&digest, 1}},
                     std::nullopt, event);
    return event;
  }

  const ChainForm form_;
  const int64_t hash_block_size_;
  const GroupIdx group_;
  const int64_t block_size_;
  const engine::EventLog events_;
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
