// SPDX-License-Identifier: Apache-2.0
#include "router/names/pending_stores.h"

#include <xxhash.h>

#include <utility>

#include "src/hash/seeded_hash.h"

namespace kvcast::router {
namespace {

constexpr size_t kTokenBytes = sizeof(TokenId);

size_t BytesOf(const ExtraKey& key) {
  size_t bytes = sizeof(key);
  if (const auto* text = std::get_if<std::string>(&key.value)) bytes += text->size();
  if (const auto* binary = std::get_if<Bytes>(&key.value)) bytes += binary->data.size();
  if (const auto* list = std::get_if<ExtraKeyList>(&key.value)) {
    for (const ExtraKey& item : list->items) bytes += BytesOf(item);
  }
  return bytes;
}

// Returns the size of the store in tokens. 8 bytes of content whose size does not follow from the
// number of tokens count as one token.
size_t TokensOf(const BlockStored& store) {
  size_t bytes = 0;
  for (const BlockHash& hash : store.block_hashes) {
    if (hash.is_bytes()) bytes += hash.bytes().size();
  }
  if (store.extra_keys) {
    for (const std::optional<ExtraKeys>& keys : *store.extra_keys) {
      if (!keys) continue;
      for (const ExtraKey& key : *keys) bytes += BytesOf(key);
    }
  }
  if (store.metadata) {
    for (const auto& [name, value] : *store.metadata) bytes += name.size() + BytesOf(value);
  }
  if (store.lookahead) bytes += store.lookahead->token_ids.size() * kTokenBytes;
  return store.token_ids->size() + bytes / kTokenBytes;
}

bool NamesEqualBlocks(const BlockStored& one, const BlockStored& other) {
  return one.block_hashes == other.block_hashes && one.block_size == other.block_size &&
         one.token_ids == other.token_ids;
}

// Returns equal values for stores that name equal blocks after the same parent.
uint64_t FingerprintOf(uint64_t parent, const BlockStored& store) {
  const SeededHash hash{ProcessSeed()};
  uint64_t value = hash(parent ^ static_cast<uint64_t>(store.block_size));
  for (const BlockHash& block : store.block_hashes) value = hash(value ^ hash(block));
  return XXH3_64bits_withSeed(store.token_ids->data(), store.token_ids->size() * kTokenBytes,
                              value ^ hash.seed);
}

}  // namespace

void PendingStores::Park(uint64_t parent, BlockStored store) {
  const size_t tokens = TokensOf(store);
  if (tokens > kMaxTokens) {
    ++dropped_;
    return;
  }
  // Groups announce the same blocks one after the other. One of these stores is enough to identify
  // the blocks.
  const uint64_t fingerprint = FingerprintOf(parent, store);
  const auto [same, is_new] = by_fingerprint_.try_emplace(fingerprint, by_age_.end());
  if (!is_new && NamesEqualBlocks(same->second->store, store)) return;
  by_age_.push_back({std::move(store), parent, fingerprint, tokens, by_age_.end()});
  const Place place = std::prev(by_age_.end());
  same->second = place;
  const auto [siblings, is_first] = by_parent_.try_emplace(parent, Siblings{place, place});
  if (!is_first) std::exchange(siblings->second.last, place)->next = place;
  tokens_ += tokens;
  while (by_age_.size() > kMaxStores || tokens_ > kMaxTokens) DropOldest();
}

std::vector<BlockStored> PendingStores::Take(uint64_t parent) {
  std::vector<BlockStored> stores;
  const auto it = by_parent_.find(parent);
  if (it == by_parent_.end()) return stores;
  for (Place place = it->second.first; place != by_age_.end();) {
    const Place next = place->next;
    stores.push_back(std::move(place->store));
    Erase(place);
    place = next;
  }
  by_parent_.erase(it);
  return stores;
}

void PendingStores::TakeAll(PendingStores& other) {
  dropped_ += std::exchange(other.dropped_, 0);
  for (Parked& parked : other.by_age_) Park(parked.parent, std::move(parked.store));
  other.Clear();
}

void PendingStores::Erase(Place place) {
  tokens_ -= place->tokens;
  const auto same = by_fingerprint_.find(place->fingerprint);
  if (same != by_fingerprint_.end() && same->second == place) by_fingerprint_.erase(same);
  by_age_.erase(place);
}

// The oldest of all stores is also the oldest store that waits for its parent.
void PendingStores::DropOldest() {
  const Place oldest = by_age_.begin();
  const auto it = by_parent_.find(oldest->parent);
  it->second.first = oldest->next;
  if (oldest->next == by_age_.end()) by_parent_.erase(it);
  Erase(oldest);
  ++dropped_;
}

void PendingStores::Clear() {
  by_age_.clear();
  by_parent_.clear();
  by_fingerprint_.clear();
  tokens_ = 0;
}

}  // namespace kvcast::router
