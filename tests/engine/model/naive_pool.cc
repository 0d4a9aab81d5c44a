// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/model/naive_pool.h"

#include <algorithm>

namespace kvcast::naive {

bool IsFull(const GroupSpec& spec) {
  return spec.kind == SpecKind::kFullAttention || spec.kind == SpecKind::kMlaAttention ||
         spec.kind == SpecKind::kSinkFullAttention;
}
bool IsWindow(const GroupSpec& spec) {
  return spec.kind == SpecKind::kSlidingWindow || spec.kind == SpecKind::kSlidingWindowMla;
}
bool IsPrefixCached(const GroupSpec& spec) {
  return IsFull(spec) || IsWindow(spec) || spec.kind == SpecKind::kMamba ||
         spec.kind == SpecKind::kChunkedLocalAttention;
}

namespace {

std::string KindName(SpecKind kind) {
  switch (kind) {
    case SpecKind::kFullAttention:
      return "full_attention";
    case SpecKind::kMlaAttention:
      return "mla_attention";
    case SpecKind::kSinkFullAttention:
      return "sink_full_attention";
    case SpecKind::kSlidingWindow:
      return "sliding_window";
    case SpecKind::kSlidingWindowMla:
      return "sliding_window_mla";
    case SpecKind::kChunkedLocalAttention:
      return "chunked_local_attention";
    case SpecKind::kMamba:
      return "mamba";
    default:
      return "?";
  }
}

}  // namespace

ExtraKeys PrefixNames::KeysAt(const CacheRequest& request, int64_t begin) {
  ExtraKeys keys;
  const HashInputs& inputs = request.hash_inputs;
  if (!inputs.lora_name.empty()) keys.push_back(ExtraKey::Text(inputs.lora_name));
  if (begin == 0 && !inputs.cache_salt.empty()) keys.push_back(ExtraKey::Text(inputs.cache_salt));
  return keys;
}

const std::vector<Prefix>& PrefixNames::ChainOf(const CacheRequest& request) {
  std::vector<Prefix>& chain = chains_[request.id];
  const auto known = static_cast<int64_t>(request.tokens.size());
  for (auto i = static_cast<int64_t>(chain.size()); (i + 1) * hash_block_size_ <= known; ++i) {
    const auto first = request.tokens.begin() + i * hash_block_size_;
    const std::vector<TokenId> tokens(first, first + hash_block_size_);
    const Prefix parent = chain.empty() ? kRoot : chain.back();
    const std::string salt = i == 0 ? request.hash_inputs.cache_salt : "";
    const auto [name, is_new] =
        names_.try_emplace({parent, tokens, request.hash_inputs.lora_name, salt},
                           static_cast<Prefix>(digests_.size()));
    if (is_new) {
      const Digest* before = parent == kRoot ? nullptr : &digests_[static_cast<size_t>(parent)];
      digests_.push_back(hasher_.HashBlock(before, tokens, KeysAt(request, i * hash_block_size_)));
    }
    chain.push_back(name->second);
  }
  return chain;
}

Pool::Pool(const CacheConfig& config, PrefixNames& names, const EventOptions& options)
    : groups_(config.groups),
      names_(names),
      options_(options),
      scratch_first_(config.rules >= EngineRules::kMain2026August),
      refs_(static_cast<size_t>(config.num_blocks), 0),
      keys_(static_cast<size_t>(config.num_blocks)) {
  adopted_.assign(refs_.size(), false);
  for (Block block = 1; block < refs_.size(); ++block) early_.push_back(block);
}

const Key* Pool::FirstKey(Block block) const {
  return keys_[block].empty() ? nullptr : &keys_[block][0].key;
}

int64_t Pool::FirstKeyTokens(Block block) const {
  return keys_[block].empty() ? 0 : keys_[block][0].tokens;
}

Block Pool::Find(const Key& key) const {
  const auto found = holders_.find(key);
  return found == holders_.end() ? 0 : found->second.at(0);
}

Block Pool::Take() {
  std::list<Block>& from = early_.empty() ? free_ : early_;
  const Block block = from.front();
  from.pop_front();
  adopted_[block] = false;
  DropKeys(block);
  refs_[block] = 1;
  return block;
}

void Pool::Touch(Block block) {
  if (block == 0) return;
  if (refs_[block] == 0) {
    early_.remove(block);
    free_.remove(block);
  }
  ++refs_[block];
}

void Pool::Adopt(Block block) {
  Touch(block);
  adopted_[block] = true;
}

void Pool::Free(const Blocks& blocks, bool early) {
  std::list<Block> scratch;
  for (const Block block : blocks) {
    if (block == 0) continue;
    if (--refs_[block] > 0) continue;
    if (scratch_first_ && keys_[block].empty()) {
      scratch.push_back(block);
    } else if (early && !keys_[block].empty() && !adopted_[block]) {
      early_.push_back(block);
    } else {
      free_.push_back(block);
    }
  }
  early_.splice(early_.begin(), scratch);
}

bool Pool::Reset() {
  if (num_free() + 1 != refs_.size()) return false;
  holders_.clear();
  for (auto& keys : keys_) keys.clear();
  AllBlocksCleared event;
  if (options_.name_cleared_tier) event.medium = "GPU";
  Send(event);
  return true;
}

bool Pool::Insert(const Key& key, Block block, int64_t tokens) {
  keys_[block].push_back({key, tokens});
  holders_[key].push_back(block);
  return holders_[key].size() == 1;
}

void Pool::DropKeys(Block block) {
  for (const Covered& covered : std::exchange(keys_[block], {})) {
    Blocks& holders = holders_.at(covered.key);
    std::erase(holders, block);
    const bool last = holders.empty();
    if (last) holders_.erase(covered.key);
    if (options_.announce_once && !last) continue;
    BlockRemoved event;
    event.block_hashes = {HashOf(covered.key.prefix)};
    event.medium = "GPU";
    event.group_idx = static_cast<int64_t>(covered.key.group);
    Send(event);
  }
}

void Pool::MoveKeys(Block from, Block to) {
  keys_[to] = std::exchange(keys_[from], {});
  for (const Covered& covered : keys_[to]) {
    Blocks& holders = holders_.at(covered.key);
    std::erase(holders, from);
    holders.push_back(to);
  }
}

void Pool::CacheFull(const CacheRequest& request, size_t group, const Blocks& table, int64_t begin,
                     int64_t end, const std::vector<bool>& keep) {
  const int64_t size = groups_[group].block_size;
  const std::vector<Prefix>& chain = names_.ChainOf(request);
  std::vector<Named> named;
  for (int64_t i = begin; i < end; ++i) {
    const Block block = table[static_cast<size_t>(i)];
    if (block == 0 || !keep[static_cast<size_t>(i - begin)]) continue;
    DropKeys(block);
    const Prefix prefix = chain[static_cast<size_t>((i + 1) * size / names_.hash_block_size() - 1)];
    const bool is_new = Insert({prefix, group}, block, (i + 1) * size);
    if (is_new || !options_.announce_once) named.push_back({prefix, i * size});
  }
  Announce(request, group, size, begin * size, end * size, named);
}

bool Pool::CachePartial(const CacheRequest& request, size_t group, Block block, int64_t tokens) {
  if (block == 0) return false;
  const int64_t hash_block_size = names_.hash_block_size();
  const Prefix prefix = names_.ChainOf(request)[static_cast<size_t>(tokens / hash_block_size - 1)];
  const Key key{prefix, group};
  for (const Covered& covered : keys_[block]) {
    if (covered.key == key) return true;
  }
  if (!keys_[block].empty() && keys_[block][0].tokens < tokens) DropKeys(block);
  const bool is_new = Insert(key, block, tokens);
  if (!is_new && options_.announce_once) return true;
  Announce(request, group, hash_block_size, tokens - hash_block_size, tokens,
           {{prefix, tokens - hash_block_size}});
  return true;
}

void Pool::Report(const CacheRequest& request, size_t group, const Blocks& hit, int64_t tokens) {
  if (options_.announce_once) return;
  const int64_t size = groups_[group].block_size;
  const std::vector<Prefix>& chain = names_.ChainOf(request);
  const int64_t count = std::min(static_cast<int64_t>(hit.size()), tokens / size);
  if (count == 0) return;
  std::vector<Named> named;
  for (int64_t i = 0; i < count; ++i) {
    if (options_.exact_spans && hit[static_cast<size_t>(i)] == 0) continue;
    named.push_back(
        {chain[static_cast<size_t>((i + 1) * size / names_.hash_block_size() - 1)], i * size});
  }
  Announce(request, group, size, 0, count * size, named);
}

void Pool::Announce(const CacheRequest& request, size_t group, int64_t block_size, int64_t begin,
                    int64_t end, const std::vector<Named>& blocks) {
  if (!options_.exact_spans) {
    if (blocks.empty() && options_.announce_once) return;
    return SendSpan(request, group, block_size, begin, end, blocks);
  }
  // One event per run of adjacent blocks.
  std::vector<Named> run;
  for (const Named& named : blocks) {
    if (!run.empty() && named.begin != run.back().begin + block_size) {
      SendSpan(request, group, block_size, run[0].begin, run.back().begin + block_size, run);
      run.clear();
    }
    run.push_back(named);
  }
  if (run.empty()) return;
  SendSpan(request, group, block_size, run[0].begin, run.back().begin + block_size, run);
}

void Pool::SendSpan(const CacheRequest& request, size_t group, int64_t block_size, int64_t begin,
                    int64_t end, const std::vector<Named>& blocks) {
  const GroupSpec& spec = groups_[group];
  BlockStored event;
  for (const Named& named : blocks) {
    event.block_hashes.push_back(HashOf(named.prefix));
    if (!event.extra_keys) event.extra_keys.emplace();
    const ExtraKeys keys = PrefixNames::KeysAt(request, named.begin);
    event.extra_keys->push_back(keys.empty() ? std::nullopt : std::optional(keys));
  }
  if (begin > 0) {
    event.parent_block_hash =
        HashOf(names_.ChainOf(request)[static_cast<size_t>(begin / names_.hash_block_size() - 1)]);
  }
  event.token_ids.emplace(request.tokens.begin() + begin, request.tokens.begin() + end);
  event.block_size = block_size;
  event.lora_id = request.lora_id;
  event.medium = "GPU";
  if (!request.hash_inputs.lora_name.empty()) event.lora_name = request.hash_inputs.lora_name;
  event.group_idx = static_cast<int64_t>(group);
  event.kv_cache_spec_kind = KindName(spec.kind);
  if (IsWindow(spec)) event.kv_cache_spec_sliding_window = spec.sliding_window;
  event.session_id = request.session_id;
  if (options_.exact_spans) event.token_offset = begin;
  Send(event);
}

BlockHash Pool::HashOf(Prefix prefix) const {
  return ToEventHash(names_.digest(prefix), options_.hash_form);
}

void Pool::Send(Event event) {
  if (options_.enabled) events_.push_back(std::move(event));
}

std::map<Prefix, int64_t> Pool::CachedPrefixes(size_t group) const {
  std::map<Prefix, int64_t> prefixes;
  for (const auto& [key, holders] : holders_) {
    if (key.group == group) prefixes[key.prefix] = static_cast<int64_t>(holders.size());
  }
  return prefixes;
}

}  // namespace kvcast::naive
