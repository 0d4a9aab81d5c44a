// Tests a publisher that is killed and restarts (rows F5 and F15 of tests/RELIABILITY.md).
// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/fault_test.h"

namespace kvcast::stream {
namespace {

constexpr uint64_t kBefore = 100;

struct Restart {
  const char* name;
  // Number of batches that the new publisher publishes before the subscriber finds the new
  // publisher.
  uint64_t batches;
  bool with_replay;
};

class RestartTest : public FaultTest, public ::testing::WithParamInterface<Restart> {};

// The new publisher may be at any sequence number. The old state must be dropped before the first
// batch of the new publisher is applied.
TEST_P(RestartTest, TheOldStateIsDroppedBeforeABatchOfTheNewPublisherIsApplied) {
  const Restart& restart = GetParam();
  auto first = MakePublisher(TestPublisherConfig());
  Network network(*first);
  Follow(network.source(kWorker, restart.with_replay));
  ASSERT_TRUE(Eventually([&] {
    if (first->next_seq().value < kBefore) PublishUpTo(*first, first->next_seq().value + 1);
    return subscriber_->status(kWorker).next_seq == kBefore;
  }));

  const auto second = MakePublisher(TestPublisherConfig());
  PublishUpTo(*second, restart.batches, 1);
  network.SwitchTo(*second);
  first.reset();
  const Stopwatch since;
  // Without replay, the subscriber detects the restart only at a message of the new publisher.
  ASSERT_TRUE(Eventually([&] {
    if (!restart.with_replay) PublishUpTo(*second, second->next_seq().value + 1, 1);
    return subscriber_->status(kWorker).resets > 0;
  }));
  Figure("F5", std::string("restart found, ") + restart.name, since.seconds(), 1, "s");
  PublishUpTo(*second, second->next_seq().value + 10, 1);
  ASSERT_TRUE(Eventually(
      [&] { return subscriber_->status(kWorker).next_seq == second->next_seq().value; }));

  bool was_reset = false;
  for (const std::string& delivery : sink_.deliveries()) {
    if (delivery.starts_with("reset")) {
      was_reset = true;
      continue;
    }
    EXPECT_EQ(delivery[0], was_reset ? '1' : '0') << delivery;
  }
  EXPECT_TRUE(was_reset);
  if (restart.with_replay) {
    auto want = Batches(0, kBefore);
    want.emplace_back("reset restart");
    const auto new_batches = Batches(0, second->next_seq().value, 1);
    want.insert(want.end(), new_batches.begin(), new_batches.end());
    EXPECT_EQ(sink_.deliveries(), want);
    EXPECT_TRUE(Reaches(SourceState::kSynced));
  }
}

INSTANTIATE_TEST_SUITE_P(Numbers, RestartTest,
                         ::testing::Values(Restart{"behind", kBefore / 2, true},
                                           Restart{"at the same number", kBefore, true},
                                           Restart{"ahead", kBefore * 2, true},
                                           Restart{"behind, no replay", kBefore / 2, false},
                                           Restart{"at the same number, no replay", kBefore, false},
                                           Restart{"ahead, no replay", kBefore * 2, false}),
                         [](const auto& each) { return std::to_string(each.index); });

TEST(FleetRestart, SixtyFourSourcesRecoverAtTheSameTime) {
  constexpr uint32_t kSources = 64;
  constexpr uint64_t kBatches = 200;
  std::vector<std::unique_ptr<Publisher>> publishers;
  std::vector<std::unique_ptr<Network>> networks;
  RecordingSink sink;
  auto subscriber = Subscriber::Create({});
  ASSERT_TRUE(subscriber.ok());
  const auto all_are_at = [&](uint64_t next_seq) {
    return Eventually([&] {
      for (uint32_t i = 0; i < kSources; ++i) {
        const SourceStatus status = (*subscriber)->status(WorkerId(i));
        if (status.state != SourceState::kSynced || status.next_seq != next_seq) return false;
      }
      return true;
    });
  };
  for (uint32_t i = 0; i < kSources; ++i) {
    publishers.push_back(MakePublisher(TestPublisherConfig()));
    PublishUpTo(*publishers.back(), kBatches);
    networks.push_back(std::make_unique<Network>(*publishers.back()));
    ASSERT_TRUE(AddSource(**subscriber, sink, networks.back()->source(WorkerId(i))).ok());
  }
  ASSERT_TRUE(all_are_at(kBatches));
  for (uint32_t i = 0; i < kSources; ++i) {
    auto next = MakePublisher(TestPublisherConfig());
    PublishUpTo(*next, kBatches + 1, 1);
    networks[i]->SwitchTo(*next);
    publishers[i] = std::move(next);
  }
  const Stopwatch since;
  EXPECT_TRUE(all_are_at(kBatches + 1));
  Figure("F15", "64 sources synced again", since.seconds(), 5, "s");
  for (uint32_t i = 0; i < kSources; ++i) {
    EXPECT_EQ((*subscriber)->status(WorkerId(i)).resets, 1u) << i;
  }
}

}  // namespace
}  // namespace kvcast::stream
