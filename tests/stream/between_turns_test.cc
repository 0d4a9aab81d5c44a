// Subscriber::BetweenTurns gives positions that belong to the states of the sinks, and no sink is
// called meanwhile.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "src/base/clock.h"
#include "src/base/sanitizers.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

constexpr size_t kSources = 3;

// Counts the applied batches. Each call of source 2 takes so long that another thread (a lane)
// handles this source.
class CountingSink final : public ReplicaSink {
 public:
  explicit CountingSink(bool slow) : slow_(slow) {}
  BatchResult Apply(Seq seq, std::span<const uint8_t>) override {
    calls_ += 1;
    if (slow_) {
      for (const int64_t end = SteadyNs() + 3'000'000; SteadyNs() < end;) {
      }
    }
    next_ = seq.value + 1;
    calls_ += 1;
    return BatchResult::kApplied;
  }
  void Reset(ResetReason) override {}

  uint64_t next() const { return next_; }
  // Odd during a call.
  uint64_t calls() const { return calls_; }

 private:
  const bool slow_;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> calls_{0};
};

TEST(BetweenTurns, NoSinkIsCalledAndThePositionsFit) {
  SubscriberConfig config;
  config.slow_threads = true;
  const auto subscriber = Subscriber::Create(config).value();
  std::array<std::unique_ptr<Publisher>, kSources> publishers;
  std::array<std::shared_ptr<CountingSink>, kSources> sinks;
  for (size_t i = 0; i < kSources; ++i) {
    publishers[i] = MakePublisher(TestPublisherConfig());
    sinks[i] = std::make_shared<CountingSink>(/*slow=*/i == 2);
    const WorkerId id(static_cast<uint32_t>(i));
    ASSERT_TRUE(subscriber
                    ->Add({.worker = id,
                           .endpoint = publishers[i]->endpoint(),
                           .replay_endpoint = publishers[i]->replay_endpoint(),
                           .topic = ""},
                          sinks[i])
                    .ok());
  }
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    for (uint64_t end = 1; !stop; ++end) {
      for (const auto& publisher : publishers) PublishUpTo(*publisher, end);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  size_t positions = 0;
  const int kCalls = kSanitized ? 60 : 300;
  for (int call = 0; call < kCalls || positions < 2 * kSources; ++call) {
    subscriber->BetweenTurns([&](const std::vector<FollowedPosition>& followed) {
      std::array<uint64_t, kSources> calls{};
      for (size_t i = 0; i < kSources; ++i) {
        calls[i] = sinks[i]->calls();
        EXPECT_EQ(calls[i] % 2, 0u) << "a sink is called";
      }
      for (const FollowedPosition& source : followed) {
        EXPECT_EQ(source.position.next_seq, sinks[source.worker.value]->next());
        EXPECT_TRUE(source.position.complete);
        ++positions;
      }
      std::this_thread::yield();
      for (size_t i = 0; i < kSources; ++i) EXPECT_EQ(sinks[i]->calls(), calls[i]);
    });
  }
  stop = true;
  engine.join();
  EXPECT_GT(positions, static_cast<size_t>(kSources));
}

// The subscriber's thread may not have taken over the source yet.
TEST(BetweenTurns, ASourceWithASavedStateHasItsPositionAtOnce) {
  constexpr uint32_t kAdded = 100;
  const auto subscriber = Subscriber::Create({}).value();
  const SavedPosition saved = {
      .epoch = Epoch{1, 2}, .first_seq = 3, .next_seq = 9, .complete = true, .fingerprints = {}};
  for (uint32_t i = 0; i < kAdded; ++i) {
    const auto sink = std::make_shared<CountingSink>(/*slow=*/false);
    ASSERT_TRUE(subscriber
                    ->Add({.worker = WorkerId(i),
                           .endpoint = "tcp://127.0.0.1:9",
                           .replay_endpoint = "tcp://127.0.0.1:9",
                           .topic = "",
                           .bind = false,
                           .server_key = "",
                           .resume = saved},
                          sink)
                    .ok());
    subscriber->BetweenTurns([&](const std::vector<FollowedPosition>& followed) {
      ASSERT_EQ(followed.size(), i + 1);
      for (const FollowedPosition& source : followed) EXPECT_EQ(source.position, saved);
    });
  }
}

}  // namespace
}  // namespace kvcast::stream
