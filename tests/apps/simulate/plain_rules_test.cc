// Tests of the rules that use no index. The expected choices follow from the formulas of the rules.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "tests/apps/simulate/rule_input.h"

namespace kvcast::simulate {
namespace {

TEST(RoundRobin, ChoosesTheEnginesInTurn) {
  TestInput input(3);
  const auto rule = TestInput::Make("round_robin", 3);
  for (size_t k = 0; k < 7; ++k) EXPECT_EQ(input.Choose(*rule), k % 3);
}

TEST(LeastLoaded, TakesTheEngineWithTheFewestRequests) {
  TestInput input(3);
  input.engines[0].load.requests = 4;
  input.engines[1].load.requests = 2;
  input.engines[2].load.requests = 3;
  input.engines[0].hit_tokens = 1000;  // the cache does not matter
  EXPECT_EQ(input.Choose("least_loaded"), 1u);
}

TEST(SessionHash, KeepsSessionsAndSpreadsThem) {
  TestInput input(4);
  std::set<size_t> used;
  for (int64_t session = 0; session < 40; ++session) {
    input.session = session;
    const size_t home = input.Choose("session_hash");
    input.engines[home].load.requests = 1000;  // the load does not matter
    EXPECT_EQ(input.Choose("session_hash"), home);
    used.insert(home);
  }
  EXPECT_EQ(used.size(), 4u);
}

TEST(SessionHash, OtherSessionsStayIfAnEngineEnds) {
  for (int64_t session = 0; session < 40; ++session) {
    TestInput four(4);
    four.session = session;
    const size_t home = four.Choose("session_hash");
    if (home == 0) continue;
    TestInput three(3);
    three.session = session;
    for (size_t e = 0; e < 3; ++e) three.engines[e].engine = e + 1;
    EXPECT_EQ(three.engines[three.Choose("session_hash")].engine, home);
  }
}

TEST(BoundedHash, LeavesTheHomeAboveTheBound) {
  TestInput input(4);
  const size_t home = input.Choose("session_hash");
  EXPECT_EQ(input.Choose("bounded_hash"), home);
  // 7 requests with the new request: the bound is ceil(1.25 * 7 / 4) = 3.
  for (size_t e = 0; e < 4; ++e) input.engines[e].load.requests = e == home ? 3 : 1;
  EXPECT_NE(input.Choose("bounded_hash"), home);
  EXPECT_EQ(input.Choose("bounded_hash:factor=2"), home);  // ceil(2 * 7 / 4) = 4
  // 9 requests with the new request: the bound is ceil(1.25 * 9 / 4) = 3.
  for (RuleEngine& engine : input.engines) engine.load.requests = 2;
  EXPECT_EQ(input.Choose("bounded_hash"), home);
}

}  // namespace
}  // namespace kvcast::simulate
