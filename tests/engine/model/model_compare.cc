// ModelRun: the calls that return an answer, and the comparison after each call.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "kvcast/wire/wire.h"
#include "tests/engine/model/model_run.h"
#include "tests/support/engine_testing.h"

namespace kvcast::naive {
namespace {

std::string Short(const BlockHash& hash) {
  return std::to_string(hash.is_bytes() ? hash.bytes()[0] : hash.integer() % 100000);
}

// One line per event.
std::string ToText(const std::vector<Event>& events) {
  std::ostringstream text;
  for (const Event& event : events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      text << "  stored, group " << *stored->group_idx << ", " << stored->token_ids->size()
           << " tokens in blocks of " << stored->block_size << ":";
      for (const BlockHash& hash : stored->block_hashes) text << " " << Short(hash);
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      text << "  removed, group " << *removed->group_idx << ": "
           << Short(removed->block_hashes.at(0));
    } else {
      text << "  cleared";
    }
    text << "\n";
  }
  return text.str();
}

}  // namespace

std::string Coverage::ToString() const {
  std::ostringstream text;
  text << calls << " calls in " << configs << " configurations: " << hits << " hits, "
       << hits_inside_blocks << " inside blocks, " << boundaries << " shared boundaries, "
       << refusals << " refusals, " << copies << " copies, " << external << " external loads, "
       << resets << " resets, " << events << " events";
  return text.str();
}

void ModelRun::CompareEvents() {
  EventBatch expected;
  expected.events = naive_->TakeEvents();
  coverage_.events += static_cast<int64_t>(expected.events.size());
  ASSERT_EQ(cache_->pending_events(), expected.events.size());
  if (!expected.events.empty() && OneIn(random_, 4)) {
    std::vector<uint8_t> payload;
    std::vector<uint8_t> expected_payload;
    ASSERT_TRUE(cache_->TakePayload(0, std::nullopt, Dialect::kKvcast1, payload).ok());
    ASSERT_TRUE(EncodeBatch(expected, Dialect::kKvcast1, expected_payload).ok());
    ASSERT_TRUE(payload == expected_payload) << "payload of\n" << ToText(expected.events);
    return;
  }
  const std::vector<Event> events = cache_->TakeEvents();
  ASSERT_TRUE(events == expected.events) << ToText(events) << "expected\n"
                                         << ToText(expected.events);
}

void ModelRun::Compare() {
  CompareEvents();
  ASSERT_EQ(cache_->usage().free_blocks, static_cast<int64_t>(naive_->num_free()));
  for (const Client& client : running_) CompareTables(client.request);
  if (OneIn(random_, 4)) {
    ASSERT_EQ(engine::ToIds(cache_->TakeBlocksToZero()), naive_->TakeBlocksToZero());
  }
  const Status status = cache_->CheckInvariants();
  ASSERT_TRUE(status.ok()) << status.ToString();
  if (OneIn(random_, 8)) CompareKeys();
}

void ModelRun::CompareTables(const CacheRequest& request) {
  for (uint32_t group = 0; group < config_.groups.size(); ++group) {
    ASSERT_EQ(engine::ToIds(cache_->BlockTable(request, GroupIdx(group))),
              naive_->Table(request.id, group))
        << "request " << request.id << " group " << group;
  }
}

void ModelRun::CompareKeys() {
  using Keys = std::vector<std::pair<std::array<uint8_t, 32>, int64_t>>;
  for (uint32_t group = 0; group < config_.groups.size(); ++group) {
    Keys keys;
    for (const CachedKey& key : cache_->CachedKeys(GroupIdx(group))) {
      keys.emplace_back(key.digest.data, key.copies);
    }
    Keys expected;
    for (const auto& [digest, copies] : naive_->CachedKeys(group)) {
      expected.emplace_back(digest.data, copies);
    }
    std::sort(keys.begin(), keys.end());
    std::sort(expected.begin(), expected.end());
    ASSERT_TRUE(keys == expected) << "cached keys of group " << group;
  }
}

PrefixHit ModelRun::LookUp(CacheRequest& request) {
  const PrefixHit hit = cache_->GetComputedBlocks(request);
  const PrefixHit expected = naive_->GetComputedBlocks(request);
  EXPECT_EQ(hit.tokens, expected.tokens);
  EXPECT_EQ(engine::ToIds(hit.blocks), engine::ToIds(expected.blocks));
  EXPECT_EQ(hit.shared_prefix_boundary, expected.shared_prefix_boundary);
  coverage_.boundaries += hit.shared_prefix_boundary > 0 ? 1 : 0;
  return hit;
}

bool ModelRun::Allocate(CacheRequest& request, const AllocateArgs& args) {
  std::vector<std::vector<BlockId>> added;
  std::vector<Blocks> expected;
  const bool ok = cache_->AllocateSlots(request, args, &added);
  EXPECT_EQ(ok, naive_->AllocateSlots(request, args, expected));
  EXPECT_EQ(engine::ToIds(added), expected);
  coverage_.refusals += ok ? 0 : 1;
  return ok;
}

void ModelRun::CompareAnswers(CacheRequest& request) {
  const auto per_group = cache_->GetComputedTokensPerGroup(request);
  const auto expected = naive_->GetComputedTokensPerGroup(request);
  for (size_t i = 0; i < per_group.size(); ++i) {
    if (!IsPrefixCached(config_.groups[i])) continue;
    ASSERT_EQ(per_group[i], expected[i]) << "group " << i;
  }
  for (uint32_t group = 0; group < config_.groups.size(); ++group) {
    ASSERT_EQ(cache_->CommonPrefixBlocks(request, GroupIdx(group)),
              naive_->CommonPrefixBlocks(request.id, group))
        << "group " << group;
  }
}

void ModelRun::RunCopies() {
  // The copies of the previous RunCopies have run, so their blocks can be released.
  cache_->ReleaseCopies(copies_);
  naive_->ReleaseCopies(expected_copies_);
  copies_ = cache_->TakeCopies();
  expected_copies_ = naive_->TakeCopies();
  coverage_.copies += static_cast<int64_t>(copies_.size());
  ASSERT_EQ(copies_.size(), expected_copies_.size());
  for (size_t i = 0; i < copies_.size(); ++i) {
    ASSERT_EQ(copies_[i].source.value, expected_copies_[i].first) << "copy " << i;
    ASSERT_EQ(copies_[i].target.value, expected_copies_[i].second) << "copy " << i;
  }
}

}  // namespace kvcast::naive
