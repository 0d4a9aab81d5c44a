// A source says itself degraded when something came that it could not decode, and promises nothing
// of what may be gone. SPDX-License-Identifier: Apache-2.0
#include "router/service/source.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/router/index_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Full;
using kvcast::testing::Hashes;
using kvcast::testing::Registered;
using kvcast::testing::StoreFull;

struct SourceTest : ::testing::Test {
  SourceTest() {
    RouterSource config;
    config.worker = Registered({Full()});
    source = Source::Create(WorkerId(3), config, index).value();
  }
  void Send(const EventBatch& batch) {
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    source->OnBatch(payload);
  }
  int64_t Reusable() const { return index.Match(Hashes(1, 4), 16, 65)[0].gpu_tokens; }
  SourceState State() const { return source->State(SourceState::kSynced); }

  PrefixIndex index;
  std::unique_ptr<Source> source;
};

// [0.0, [["Event", ...]], nil] by hand: msgpack that no encoder of ours writes.
std::vector<uint8_t> BatchOfOneArray(const std::string& tag, uint8_t argument) {
  std::vector<uint8_t> payload = {0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x92};
  payload.push_back(static_cast<uint8_t>(0xa0 + tag.size()));
  payload.insert(payload.end(), tag.begin(), tag.end());
  payload.insert(payload.end(), {argument, 0xc0});
  return payload;
}

TEST_F(SourceTest, AppliesWhatItDecodes) {
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  EXPECT_EQ(Reusable(), 64);
  EXPECT_EQ(source->counters().decode.decoded, 1u);
  EXPECT_EQ(State(), SourceState::kSynced);
  EXPECT_EQ(source->State(SourceState::kReplaying), SourceState::kReplaying);
}

TEST_F(SourceTest, UndecodableBatchForgetsAllAndDegrades) {
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  source->OnBatch(std::vector<uint8_t>{0xc1, 0x00});
  EXPECT_EQ(Reusable(), 0);
  EXPECT_EQ(State(), SourceState::kDegraded);
  EXPECT_EQ(source->counters().undecodable_batches, 1u);
}

TEST_F(SourceTest, BrokenEventDegradesAndKeepsItsNeighbours) {
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  source->OnBatch(BatchOfOneArray("BlockRemoved", 0x05));
  EXPECT_EQ(source->counters().decode.rejected_total(), 1u);
  EXPECT_EQ(Reusable(), 64);
  EXPECT_EQ(State(), SourceState::kDegraded);
}

TEST_F(SourceTest, EventOfAKindToComeDegradesNothing) {
  source->OnBatch(BatchOfOneArray("BlockPromoted", 0x05));
  EXPECT_EQ(source->counters().decode.rejected_total(), 1u);
  EXPECT_EQ(State(), SourceState::kSynced);
}

TEST_F(SourceTest, RestartOfThePublisherEndsTheDegradation) {
  source->OnBatch(std::vector<uint8_t>{0xc1});
  source->OnReset(ResetReason::kLostBatches);
  EXPECT_EQ(State(), SourceState::kDegraded);
  source->OnReset(ResetReason::kRestart);
  EXPECT_EQ(State(), SourceState::kSynced);
}

TEST_F(SourceTest, ResetForgetsWhatTheWorkerHeld) {
  for (const ResetReason reason : {ResetReason::kLostBatches, ResetReason::kRestart}) {
    Send(Batch(StoreFull(Hashes(1, 4), 0)));
    EXPECT_EQ(Reusable(), 64);
    source->OnReset(reason);
    EXPECT_EQ(Reusable(), 0);
  }
}

TEST_F(SourceTest, FormOfTheHashesIsTakenFromTheStores) {
  EXPECT_EQ(source->scheme().form, EventHashForm::kInt64);
  const std::vector<uint8_t> digest(32, 7);
  Send(Batch(StoreFull({BlockHash::FromBytes(digest)}, 0)));
  EXPECT_EQ(source->scheme().form, EventHashForm::kBytes);
}

TEST(SourceCreate, RefusesWhatCannotBeFollowed) {
  PrefixIndex index;
  RouterSource unnamed;
  EXPECT_FALSE(Source::Create(WorkerId(1), unnamed, index).ok());
  RouterSource bad_groups;
  bad_groups.worker = Registered({Full(0)});
  const auto refused = Source::Create(WorkerId(1), bad_groups, index);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(), "worker: groups[0].block_size: out of range");
}

}  // namespace
}  // namespace kvcast::router
