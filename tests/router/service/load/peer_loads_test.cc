// PeerLoads keeps the latest load of each router, and drops silent routers.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/load/peer_loads.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kvcast::router {
namespace {

constexpr int64_t kPeriodUs = 100'000;

LoadGauge GaugeOf(const std::string& origin, uint64_t epoch, uint64_t seq, int64_t decodes,
                  const std::string& worker = "w") {
  LoadGauge gauge{.origin = origin, .epoch = epoch, .seq = seq, .period_ms = 100, .load = {}};
  if (decodes > 0) {
    gauge.load.workers = {{worker, {.decodes = decodes, .decode_context = 10 * decodes}}};
  }
  return gauge;
}

struct PeerLoadsTest : ::testing::Test {
  // The name of the reason, or "".
  std::string Take(const LoadGauge& gauge, int64_t now_us = 0) {
    const auto reject = loads.Take(gauge, now_us);
    return reject ? std::string(GaugeRejectName(*reject)) : "";
  }
  // The requests in decode of all routers.
  int64_t Decodes(const std::string& worker = "w") const {
    for (const WorkerGauge& gauge : loads.Sum().workers) {
      if (gauge.worker == worker) return gauge.load.decodes;
    }
    return 0;
  }

  PeerLoads loads{"self", 5};
};

TEST_F(PeerLoadsTest, TheSumHasTheLatestLoadOfEachRouter) {
  EXPECT_EQ(Take(GaugeOf("a", 1, 1, 3)), "");
  EXPECT_EQ(Take(GaugeOf("b", 9, 4, 2)), "");
  EXPECT_EQ(Take(GaugeOf("c", 9, 4, 7, "v")), "");
  EXPECT_EQ(Decodes(), 5);
  EXPECT_EQ(Decodes("v"), 7);
  EXPECT_EQ(loads.Sum().workers[1].load.decode_context, 50) << "the workers are in order";
  EXPECT_EQ(Take(GaugeOf("a", 1, 2, 1)), "");
  EXPECT_EQ(Decodes(), 3) << "the load replaces the earlier load";
  EXPECT_EQ(Take(GaugeOf("a", 1, 9, 0)), "") << "messages may be missing";
  EXPECT_EQ(Decodes(), 2);
  EXPECT_EQ(loads.view().routers, 3u) << "a router without a load counts";
}

TEST_F(PeerLoadsTest, RatesAreSummed) {
  LoadGauge gauge = GaugeOf("a", 1, 1, 0);
  gauge.load.arrivals_per_s = 2;
  gauge.load.work_s_per_s = 0.5;
  EXPECT_EQ(Take(gauge), "");
  gauge.origin = "b";
  EXPECT_EQ(Take(gauge), "");
  EXPECT_EQ(loads.Sum().arrivals_per_s, 4);
  EXPECT_EQ(loads.Sum().work_s_per_s, 1);
}

TEST_F(PeerLoadsTest, OldMessagesAreIgnored) {
  EXPECT_EQ(Take(GaugeOf("a", 2, 10, 1)), "");
  EXPECT_EQ(Take(GaugeOf("a", 2, 10, 2), 1), "old") << "the same message again";
  EXPECT_EQ(Take(GaugeOf("a", 2, 9, 3), 1), "old");
  EXPECT_EQ(Take(GaugeOf("a", 1, 99, 4), 1), "old") << "an earlier run";
  EXPECT_EQ(Decodes(), 1);
  EXPECT_EQ(loads.view().oldest_us, 0) << "an old message does not show that the router runs";
}

TEST_F(PeerLoadsTest, ARestartedRouterCountsAfterOneMessage) {
  EXPECT_EQ(Take(GaugeOf("a", 1, 1000, 8)), "");
  EXPECT_EQ(Take(GaugeOf("a", 2, 1, 1)), "");
  EXPECT_EQ(Decodes(), 1);
  EXPECT_EQ(Take(GaugeOf("a", 1, 1001, 8)), "old");
  EXPECT_EQ(loads.view().routers, 1u);
}

TEST_F(PeerLoadsTest, OwnMessagesAreIgnored) {
  EXPECT_EQ(Take(GaugeOf("self", 5, 1, 4)), "");
  EXPECT_EQ(loads.view(), PeerView());
  EXPECT_EQ(loads.version(), 0u);
  EXPECT_EQ(Take(GaugeOf("self", 6, 1, 4)), "same_name");
  EXPECT_EQ(Take(GaugeOf("self", 4, 1, 4)), "same_name");
  EXPECT_EQ(loads.view(), PeerView());
}

TEST_F(PeerLoadsTest, ARouterThatIsSilentForThreePeriodsIsDropped) {
  EXPECT_EQ(loads.expires_us(), std::nullopt);
  EXPECT_EQ(Take(GaugeOf("a", 1, 1, 1), 1000), "");
  EXPECT_EQ(Take(GaugeOf("b", 1, 1, 2), 1000 + kPeriodUs), "");
  EXPECT_EQ(loads.expires_us(), 1000 + 3 * kPeriodUs);
  loads.Expire(1000 + 3 * kPeriodUs - 1);
  EXPECT_EQ(loads.view(), (PeerView{.routers = 2, .oldest_us = 1000}));
  const uint64_t before = loads.version();
  loads.Expire(1000 + 3 * kPeriodUs);
  EXPECT_EQ(loads.view(), (PeerView{.routers = 1, .oldest_us = 1000 + kPeriodUs}));
  EXPECT_GT(loads.version(), before);
  EXPECT_EQ(Decodes(), 2);
  EXPECT_EQ(Take(GaugeOf("b", 1, 2, 2), 1000 + 3 * kPeriodUs), "");
  loads.Expire(1000 + 4 * kPeriodUs);
  EXPECT_EQ(Decodes(), 2) << "a message with the same load shows that the router runs";
  loads.Expire(1000 + 6 * kPeriodUs);
  EXPECT_EQ(Decodes(), 0);
  EXPECT_EQ(loads.view(), PeerView());
  EXPECT_EQ(Take(GaugeOf("a", 1, 1, 1), 1000 + 6 * kPeriodUs), "")
      << "a dropped router is not remembered";
}

TEST_F(PeerLoadsTest, ThePeriodIsThatOfTheSender) {
  LoadGauge slow = GaugeOf("a", 1, 1, 1);
  slow.period_ms = 1000;
  EXPECT_EQ(Take(slow), "");
  EXPECT_EQ(loads.expires_us(), 3'000'000);
}

TEST_F(PeerLoadsTest, TheNumberOfRoutersIsBounded) {
  for (size_t i = 0; i < PeerLoads::kMaxOrigins; ++i) {
    EXPECT_EQ(Take(GaugeOf("r" + std::to_string(i), 1, 1, 1)), "");
  }
  EXPECT_EQ(Take(GaugeOf("more", 1, 1, 1)), "too_many_origins");
  EXPECT_EQ(Take(GaugeOf("r0", 1, 2, 2)), "") << "a known router still counts";
  EXPECT_EQ(Decodes(), static_cast<int64_t>(PeerLoads::kMaxOrigins) + 1);
  loads.Expire(3 * kPeriodUs);
  EXPECT_EQ(Take(GaugeOf("more", 1, 1, 1)), "");
}

// Each worker of each router counts, whether this router knows the worker or not.
TEST_F(PeerLoadsTest, TheWorkersOfAllRoutersAreBounded) {
  const auto with = [](const std::string& origin, uint64_t seq, size_t workers) {
    LoadGauge gauge = GaugeOf(origin, 1, seq, 0);
    for (size_t i = 0; i < workers; ++i) {
      gauge.load.workers.push_back({origin + std::to_string(100000 + i), {.decodes = 1}});
    }
    return gauge;
  };
  constexpr size_t kHalf = PeerLoads::kMaxWorkers / 2;
  EXPECT_EQ(Take(with("a", 1, kHalf)), "");
  EXPECT_EQ(Take(with("b", 1, kHalf)), "");
  EXPECT_EQ(Take(with("c", 1, 1)), "too_many_origins");
  EXPECT_EQ(Take(with("a", 2, kHalf + 1)), "too_many_origins");
  EXPECT_EQ(loads.view().routers, 2u);
  EXPECT_EQ(loads.Sum().workers.size(), PeerLoads::kMaxWorkers);
  EXPECT_EQ(Take(with("c", 1, 0)), "") << "a router without load needs no room";
  EXPECT_EQ(Take(with("a", 2, kHalf - 1)), "") << "a refused message does not count";
  EXPECT_EQ(Take(with("c", 2, 1)), "");
  EXPECT_EQ(loads.Sum().workers.size(), PeerLoads::kMaxWorkers);
  loads.Expire(3 * kPeriodUs);
  EXPECT_EQ(Take(with("c", 3, PeerLoads::kMaxWorkers)), "");
}

TEST_F(PeerLoadsTest, TheVersionChangesWithTheLoads) {
  EXPECT_EQ(Take(GaugeOf("a", 1, 1, 1)), "");
  const uint64_t first = loads.version();
  EXPECT_GT(first, 0u);
  EXPECT_EQ(Take(GaugeOf("a", 1, 2, 1)), "");
  EXPECT_EQ(loads.version(), first);
  EXPECT_EQ(Take(GaugeOf("a", 1, 3, 2)), "");
  EXPECT_GT(loads.version(), first);
}

// Messages are lost, repeated and reordered. The sum is always the sum of the newest messages that
// have arrived, one of each router.
TEST_F(PeerLoadsTest, AnyOrderOfMessagesGivesTheSumOfTheNewest) {
  std::mt19937_64 random(1);
  std::map<std::string, std::pair<std::pair<uint64_t, uint64_t>, int64_t>> newest;
  for (int i = 0; i < 20000; ++i) {
    const std::string origin = "r" + std::to_string(random() % 4);
    const uint64_t epoch = 1 + static_cast<uint64_t>(i) / 5000 + random() % 2;
    const uint64_t seq = static_cast<uint64_t>(i) + random() % 20;
    const auto decodes = static_cast<int64_t>((epoch * 7919 + seq * 104729) % 1000);
    Take(GaugeOf(origin, epoch, seq, decodes));
    auto& known = newest[origin];
    if (std::pair(epoch, seq) > known.first) known = {{epoch, seq}, decodes};
    int64_t sum = 0;
    for (const auto& [name, load] : newest) sum += load.second;
    ASSERT_EQ(Decodes(), sum);
  }
}

}  // namespace
}  // namespace kvcast::router
