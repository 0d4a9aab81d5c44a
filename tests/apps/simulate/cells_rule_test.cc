// Tests of the rule for a fleet in cells. Engines 0 and 1 are a cell, and engines 2 and 3 are the
// other cell.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "tests/apps/simulate/rule_input.h"

namespace kvcast::simulate {
namespace {

constexpr char kTwo[] = "cells:cells=2:sketch_blocks=4";

TEST(Cells, TheWarmEngineOfTheWarmCellServes) {
  for (size_t warm = 0; warm < 4; ++warm) {
    TestInput input(4);
    input.engines[warm].hit_tokens = 960;
    EXPECT_EQ(input.Choose(kTwo), warm);
  }
}

// Engine 3 holds 30 tokens. A sketch has prefixes of 40, 80, ... tokens, so it lacks this prefix.
TEST(Cells, TheSketchRoundsTheHitDown) {
  TestInput input(4);
  input.engines[3].hit_tokens = 30;
  input.engines[2].load.requests = 1;
  EXPECT_LT(input.Choose("cells:cells=2:request_tokens=1:sketch_blocks=4"), 2u);
  EXPECT_EQ(input.Choose("cells:cells=2:request_tokens=1:sketch_blocks=3"), 3u);
  input.engines[3].hit_tokens = 40;
  EXPECT_EQ(input.Choose("cells:cells=2:request_tokens=1:sketch_blocks=4"), 3u);
}

TEST(Cells, WithoutASketchTheLoadChooses) {
  TestInput input(4);
  input.engines[3].hit_tokens = 960;
  input.engines[2].load.requests = 1;
  EXPECT_LT(input.Choose("cells:cells=2:sketch_blocks=0"), 2u);
}

TEST(Cells, ABusyCellLosesItsPrompt) {
  TestInput input(4);
  input.engines[3].hit_tokens = 640;
  input.engines[2].load.prefill_tokens = 600;
  input.engines[3].load.prefill_tokens = 600;
  EXPECT_EQ(input.Choose(kTwo), 3u);  // 1000 - 640 + 600 < 1000
  input.engines[2].load.prefill_tokens = 700;
  EXPECT_LT(input.Choose(kTwo), 2u);
}

// A cell gets no request after all its engines have ended.
TEST(Cells, ACellWithoutEnginesIsNotChosen) {
  TestInput input(2);
  input.engines[0].engine = 2;
  input.engines[1].engine = 3;
  const auto rule = TestInput::Make(kTwo, 4);
  for (int i = 0; i < 4; ++i) EXPECT_LT(input.Choose(*rule), 2u);
}

// There are never more cells than engines.
TEST(Cells, OneEngineIsACellOfItsOwn) {
  TestInput input(3);
  input.engines[1].hit_tokens = 960;
  EXPECT_EQ(input.Choose("cells:cells=9"), 1u);
}

// A fleet of one cell makes the same decisions as kvcast's rule, because all reports reach the rule
// of the cell. Without reports, the decisions differ.
TEST(Cells, OneCellDecidesLikeKvcastsRule) {
  for (const bool reported : {true, false}) {
    std::minstd_rand random(1);
    TestInput input(4);
    const auto one = TestInput::Make("cells:cells=1", 4);
    const auto plain = TestInput::Make("kvcast", 4);
    size_t equal = 0;
    for (size_t i = 0; i < 200; ++i) {
      for (RuleEngine& engine : input.engines) {
        engine.hit_tokens = static_cast<int64_t>(random() % 100) * 10;
        engine.hit_with_cpu_tokens = 0;
      }
      input.now_s += 0.1;
      input.draw = static_cast<double>(random() % 100) / 100;
      const size_t expected = input.Choose(*plain);
      input.request = i;
      equal += input.Choose(*one) == expected ? 1 : 0;
      for (Rule* rule : {plain.get(), reported ? one.get() : plain.get()}) {
        rule->Admitted(i, input.engines[expected].hit_tokens, input.now_s);
        rule->FirstToken(i, input.now_s);
        if (i >= 3) rule->Finished(i - 3, input.now_s);
      }
    }
    EXPECT_EQ(equal == 200, reported) << equal;
  }
}

}  // namespace
}  // namespace kvcast::simulate
