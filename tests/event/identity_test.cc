// Two events are equal if all fields are equal. Equal events have equal hashes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "kvcast/core/event_identity.h"

namespace kvcast {
namespace {

BlockStored FullStored() {
  BlockStored event;
  event.block_hashes = {BlockHash::FromUnsigned(1), BlockHash::FromUnsigned(2)};
  event.parent_block_hash = BlockHash::FromUnsigned(3);
  event.token_ids = {10, 11, 12, 13};
  event.block_size = 2;
  event.lora_id = 4;
  event.medium = "GPU";
  event.lora_name = "adapter";
  event.extra_keys = {ExtraKeys{ExtraKey::Item("image", -5)}, std::nullopt};
  event.group_idx = 0;
  event.kv_cache_spec_kind = "sliding_window";
  event.kv_cache_spec_sliding_window = 128;
  event.locality = "LOCAL";
  event.ownership = "tier";
  event.session_id = "session";
  event.cache_salt = "salt";
  event.metadata = {{"key", ExtraKey::Int(7)}};
  event.token_offset = 32;
  event.lookahead = LookaheadTokens{1, {12, 14}};
  return event;
}

BlockRemoved FullRemoved() {
  BlockRemoved event;
  event.block_hashes = {BlockHash::FromUnsigned(1), BlockHash::FromUnsigned(2)};
  event.medium = "GPU";
  event.group_idx = 0;
  event.locality = "LOCAL";
  event.ownership = "tier";
  return event;
}

template <typename T>
using Changes = std::vector<std::function<void(T&)>>;

// Each function changes one field to another value, or removes the value. The first function
// changes nothing.
const Changes<BlockStored>& StoredChanges() {
  using S = BlockStored;
  static const auto& changes = *new Changes<S>{
      [](S&) {},
      [](S& e) {
        e.block_hashes = {BlockHash::FromUnsigned(2), BlockHash::FromUnsigned(1)};
      },
      [](S& e) { e.block_hashes.pop_back(); },
      [](S& e) { e.block_hashes.clear(); },
      [](S& e) { e.parent_block_hash = BlockHash::FromUnsigned(4); },
      [](S& e) { e.parent_block_hash.reset(); },
      [](S& e) { e.token_ids->back() = 14; },
      [](S& e) { e.token_ids->clear(); },
      [](S& e) { e.token_ids.reset(); },
      [](S& e) { e.tokens_per_position = 2; },
      [](S& e) { e.block_size = 4; },
      [](S& e) { e.lora_id = 5; },
      [](S& e) { e.lora_id.reset(); },
      [](S& e) { e.medium = "CPU"; },
      [](S& e) { e.medium.reset(); },
      [](S& e) { e.lora_name = "other"; },
      [](S& e) { e.lora_name.reset(); },
      [](S& e) { e.extra_keys->at(0) = ExtraKeys{ExtraKey::Item("image", 5)}; },
      [](S& e) { e.extra_keys->at(1) = ExtraKeys{}; },
      [](S& e) { std::swap(e.extra_keys->at(0), e.extra_keys->at(1)); },
      [](S& e) { e.extra_keys.reset(); },
      [](S& e) { e.group_idx = 1; },
      [](S& e) { e.group_idx.reset(); },
      [](S& e) { e.kv_cache_spec_kind = "mamba"; },
      [](S& e) { e.kv_cache_spec_kind.reset(); },
      [](S& e) { e.kv_cache_spec_sliding_window = 129; },
      [](S& e) { e.kv_cache_spec_sliding_window.reset(); },
      [](S& e) { e.locality = "REMOTE"; },
      [](S& e) { e.locality.reset(); },
      [](S& e) { e.ownership = ""; },
      [](S& e) { e.ownership.reset(); },
      [](S& e) { e.session_id = "another"; },
      [](S& e) { e.session_id.reset(); },
      [](S& e) { e.cache_salt = "pepper"; },
      [](S& e) { e.cache_salt.reset(); },
      [](S& e) { e.metadata->at(0).first = "other"; },
      [](S& e) { e.metadata->at(0).second = ExtraKey::Int(8); },
      [](S& e) { e.metadata.reset(); },
      [](S& e) { e.token_offset = 0; },
      [](S& e) { e.token_offset.reset(); },
      [](S& e) { e.lookahead->width = 2; },
      [](S& e) { e.lookahead->token_ids.back() = 15; },
      [](S& e) { e.lookahead.reset(); },
  };
  return changes;
}

const Changes<BlockRemoved>& RemovedChanges() {
  using R = BlockRemoved;
  static const auto& changes = *new Changes<R>{
      [](R&) {},
      [](R& e) { e.block_hashes.pop_back(); },
      [](R& e) { e.medium = "CPU"; },
      [](R& e) { e.medium.reset(); },
      [](R& e) { e.group_idx = 1; },
      [](R& e) { e.group_idx.reset(); },
      [](R& e) { e.locality = "REMOTE"; },
      [](R& e) { e.locality.reset(); },
      [](R& e) { e.ownership = "other"; },
      [](R& e) { e.ownership.reset(); },
  };
  return changes;
}

// Returns events that all differ from each other.
std::vector<Event> DistinctEvents() {
  std::vector<Event> events = {AllBlocksCleared(), AllBlocksCleared{"GPU"}, AllBlocksCleared{"CPU"},
                               BlockStored(), BlockRemoved()};
  for (const auto& change : StoredChanges()) {
    BlockStored event = FullStored();
    change(event);
    events.push_back(event);
  }
  for (const auto& change : RemovedChanges()) {
    BlockRemoved event = FullRemoved();
    change(event);
    events.push_back(event);
  }
  return events;
}

// If BlockStored or BlockRemoved events differ in group, window, locality or any other field, their
// hashes differ. Equal events have equal hashes.
TEST(EventIdentity, EveryFieldCountsInEqualityAndInTheHash) {
  const std::vector<Event> events = DistinctEvents();
  for (size_t i = 0; i < events.size(); ++i) {
    for (size_t j = 0; j < events.size(); ++j) {
      EXPECT_EQ(events[i] == events[j], i == j) << i << ' ' << j;
      EXPECT_EQ(EventHash()(events[i]) == EventHash()(events[j]), i == j) << i << ' ' << j;
    }
  }
}

TEST(EventIdentity, EqualEventsHaveEqualHashes) {
  const std::vector<Event> events = DistinctEvents();
  const std::vector<Event> again = DistinctEvents();
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(EventHash()(events[i]), EventHash()(again[i])) << i;
  }
}

// Makes one event per extra key. Equal numbers of different types are different keys.
std::vector<Event> EventsOfKeys(const std::vector<ExtraKey>& keys) {
  std::vector<Event> events;
  for (const ExtraKey& key : keys) {
    BlockStored event = FullStored();
    event.extra_keys->at(0) = ExtraKeys{key};
    events.emplace_back(event);
  }
  return events;
}

TEST(EventIdentity, ExtraKeysOfDifferentTypesAreDifferent) {
  const auto list = [](std::vector<ExtraKey> items) { return ExtraKey{ExtraKeyList{items}}; };
  const std::vector<Event> events = EventsOfKeys({
      {},
      {true},
      {false},
      {int64_t{1}},
      {int64_t{0}},
      {uint64_t{1}},
      {1.0},
      {0.0},
      ExtraKey::Text(""),
      ExtraKey::Text("1"),
      ExtraKey::Binary("1"),
      list({}),
      list({ExtraKey::Int(1), ExtraKey::Int(2)}),
      list({list({ExtraKey::Int(1)}), ExtraKey::Int(2)}),
      list({list({ExtraKey::Int(1), ExtraKey::Int(2)})}),
  });
  std::set<size_t> hashes;
  for (const Event& event : events) hashes.insert(EventHash()(event));
  EXPECT_EQ(hashes.size(), events.size());
}

TEST(EventIdentity, TheTwoZerosAreOneNumber) {
  const auto events = EventsOfKeys({{0.0}, {-0.0}});
  EXPECT_EQ(events[0], events[1]);
  EXPECT_EQ(EventHash()(events[0]), EventHash()(events[1]));
}

TEST(EventIdentity, AnEventWithANaNEqualsNoEvent) {
  const auto events = EventsOfKeys({{std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_FALSE(events[0] == Event(events[0]));
}

TEST(EventIdentity, FormsOfAHashAreDifferent) {
  const std::vector<uint8_t> five = {5};
  const std::vector<uint8_t> five64 = {5, 0, 0, 0, 0, 0, 0, 0};
  const std::vector<uint8_t> digest(32, 5);
  const std::vector<uint8_t> longer(33, 5);
  std::unordered_set<Event, EventHash> set;
  std::set<size_t> hashes;
  for (const BlockHash& hash :
       {BlockHash::FromUnsigned(5), BlockHash::FromUnsigned(UINT64_MAX), BlockHash::FromSigned(-1),
        BlockHash::FromBytes(five), BlockHash::FromBytes(five64), BlockHash::FromBytes(digest),
        BlockHash::FromBytes(longer), BlockHash::FromBytes({})}) {
    BlockRemoved event;
    event.block_hashes = {hash};
    set.insert(event);
    hashes.insert(EventHash()(event));
  }
  EXPECT_EQ(set.size(), 8u);
  EXPECT_EQ(hashes.size(), 8u);
}

// If a value moves to a neighbouring field, the hash must change.
TEST(EventIdentity, NeighbouringFieldsAreKeptApart) {
  BlockStored a;
  a.ownership = "x";
  BlockStored b;
  b.session_id = "x";
  BlockStored c;
  c.block_hashes = {BlockHash::FromUnsigned(1)};
  BlockStored d;
  d.parent_block_hash = BlockHash::FromUnsigned(1);
  const std::set<size_t> hashes = {EventHash()(a), EventHash()(b), EventHash()(c), EventHash()(d)};
  EXPECT_EQ(hashes.size(), 4u);
}

TEST(EventIdentity, ConsecutiveHashesSpreadOverAllBits) {
  std::set<size_t> hashes;
  std::set<size_t> low;
  std::set<size_t> high;
  constexpr size_t kEvents = 1 << 16;
  for (size_t i = 0; i < kEvents; ++i) {
    BlockRemoved event;
    event.block_hashes = {BlockHash::FromUnsigned(i)};
    const size_t hash = EventHash()(event);
    hashes.insert(hash);
    low.insert(hash & 0xffff);
    high.insert(hash >> 48);
  }
  EXPECT_EQ(hashes.size(), kEvents);
  // A random function from kEvents inputs to kEvents values reaches 1 - 1/e = 63.2 % of the values.
  EXPECT_NEAR(static_cast<double>(low.size()) / kEvents, 0.632, 0.02);
  EXPECT_NEAR(static_cast<double>(high.size()) / kEvents, 0.632, 0.02);
}

TEST(EventIdentity, ServesUnorderedContainersOfOneType) {
  std::unordered_set<BlockStored, EventHash> stored = {FullStored(), FullStored()};
  std::unordered_set<BlockRemoved, EventHash> removed = {FullRemoved()};
  EXPECT_EQ(stored.size(), 1u);
  EXPECT_TRUE(removed.contains(FullRemoved()));
  EXPECT_EQ(EventHash()(FullStored()), EventHash()(Event(FullStored())));
}

}  // namespace
}  // namespace kvcast
