// The simulation itself: equal seeds give equal runs, failures are found and reduced, and the runs
// cover their intended paths.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "src/base/sanitizers.h"
#include "src/stream_sim/seeds.h"
#include "src/stream_sim/shrink.h"
#include "src/stream_sim/world.h"

namespace kvcast::sim {
namespace {

TEST(Simulation, SameSeedIsTheSameRun) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Record first = RunPlan(DrawPlan(seed));
    const Record again = RunPlan(DrawPlan(seed));
    EXPECT_EQ(first.events, again.events) << seed;
    EXPECT_EQ(first.reached, again.reached) << seed;
  }
}

TEST(Simulation, WithoutFaultsNothingIsLostOrForgotten) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Plan plan = DrawPlan(seed);
    plan.faults.clear();
    const Record record = RunPlan(plan);
    EXPECT_TRUE(record.violations.empty()) << seed;
    for (const auto& [name, times] : record.reached) {
      EXPECT_NE(name.substr(0, 7), "resets:") << "seed " << seed << ": " << name;
    }
  }
}

TEST(Simulation, ReachesTheRarePaths) {
  constexpr uint64_t kSeeds = kSanitized ? 250 : 2000;
  const SeedsResult result = RunSeeds(1, kSeeds, 2);
  EXPECT_EQ(result.seeds, kSeeds);
  EXPECT_EQ(result.failed, 0u);
  if (kSanitized) return;
  for (const char* name : {"sequence numbers of refused batches",
                           "publishers that lost their own state",
                           "ring overruns",
                           "hold-back full",
                           "late replies of a closed request",
                           "replies cut by the server",
                           "replies scrambled",
                           "reordered batches",
                           "undecodable batches",
                           "request timeouts",
                           "snapshots",
                           "snapshot failures",
                           "digest mismatches",
                           "damage repaired by a snapshot",
                           "damage repaired in its buckets",
                           "buckets compared",
                           "repair failures",
                           "reply connections broken",
                           "oversized replies that ended their connection",
                           "requests that waited for their turn",
                           "replies that waited for their rate",
                           "replies that waited for their reader",
                           "heartbeats",
                           "live connections that could not be made",
                           "peers at a bound endpoint that are not publishers",
                           "followers without replay",
                           "legacy snapshots",
                           "legacy snapshots without parts",
                           "contradictions",
                           "state: quarantined (contradicted)",
                           "state: quarantined (digest)",
                           "restarts after batches were lost permanently",
                           "followers that restarted with a saved state",
                           "followers that restarted without a state",
                           "restarts of relays",
                           "restarts behind a relay",
                           "snapshots of relays",
                           "heartbeats of relays",
                           "requests that a silent relay dropped",
                           "batches that a relay published as lost",
                           "relays at the end: synced",
                           "relays at the end: cleared",
                           "resets behind a relay: restart",
                           "resets behind a relay: lost_batches",
                           "state behind a relay: stale",
                           "state behind a relay: cleared",
                           "state: bootstrap (unproven)",
                           "resets: restart",
                           "resets: lost_batches",
                           "resets: doubt",
                           "state: stale (silent)",
                           "state: suspect (reconnected)",
                           "state: suspect (digest)",
                           "state: suspect (unproven)",
                           "state: cleared (lost_batches)"}) {
    EXPECT_GT(result.total.reached.count(name), 0u) << name;
  }
}

TEST(Simulation, AFailingPlanIsReduced) {
  Plan plan = DrawPlan(7);
  const auto fails = [](const Plan& candidate) {
    for (const Fault& fault : candidate.faults) {
      if (fault.kind == FaultKind::kClear && fault.amount == 77) return true;
    }
    return false;
  };
  plan.faults.insert(plan.faults.begin() + 1, Fault{FaultKind::kClear, 0, 5, 0, 77});
  const Plan reduced = ShrinkBy(plan, fails);
  ASSERT_EQ(reduced.faults.size(), 1u);
  EXPECT_EQ(reduced.faults[0].amount, 77);
}

}  // namespace
}  // namespace kvcast::sim
