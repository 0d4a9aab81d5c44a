// EngineClock predicts the steps of vLLM's scheduler, and learns from the reports of first tokens.
// SPDX-License-Identifier: Apache-2.0
#include "router/select/engine_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kvcast {
namespace {

// A step takes 1 s, and 1 ms more for each token of a prompt. Attention costs nothing.
constexpr StepCost kPlain{{1, 0.001, 0, 0, 0}};
// The same costs, with the costs of attention and of decoding requests.
constexpr StepCost kWhole{{1, 0.001, 1e-6, 0.01, 1e-5}};
constexpr int64_t kStepTokens = 1000;

struct EngineClockTest : ::testing::Test {
  double Predicted(double now_s, int64_t tokens, int64_t context = 0,
                   const StepCost& cost = kPlain) const {
    return clock.Predict(now_s, context, tokens, cost).first_token_s;
  }
  EngineClock clock{kStepTokens};
};

TEST_F(EngineClockTest, APromptOnAnIdleEngineNeedsItsOwnStepsOnly) {
  const struct {
    int64_t tokens;
    double seconds;
  } rows[] = {{1, 1.001}, {100, 1.1}, {1000, 2}, {1001, 2 + 1.001}, {2500, 2 + 2 + 1.5}};
  for (const auto& [tokens, seconds] : rows) {
    const auto prediction = clock.Predict(70, 0, tokens, kPlain);
    EXPECT_NEAR(prediction.first_token_s, seconds, 1e-9) << tokens;
    EXPECT_NEAR(prediction.compute_s, seconds, 1e-9) << tokens;
  }
  EXPECT_NEAR(Predicted(70, 0), 1.001, 1e-9) << "the last token is computed even after a full hit";
}

TEST_F(EngineClockTest, TokensReadTheContextBeforeThem) {
  // Each of the 100 tokens reads the 500 tokens of the context and, on average, 50 earlier tokens
  // of the prompt.
  EXPECT_DOUBLE_EQ(Predicted(0, 100, 500, kWhole), 1 + 0.1 + 1e-6 * 100 * 550);
  // The tokens of the second chunk also read the first chunk.
  EXPECT_DOUBLE_EQ(Predicted(0, 1500, 0, kWhole),
                   (1 + 1 + 1e-6 * 1000 * 500) + (1 + 0.5 + 1e-6 * 500 * 1250));
}

TEST_F(EngineClockTest, PromptsThatFitShareAStep) {
  clock.Sent(1, 10, 0, 400, kPlain);
  EXPECT_DOUBLE_EQ(Predicted(10, 300), 1.7) << "one step of 700 tokens";
  const auto later = clock.Predict(10.5, 0, 300, kPlain);
  EXPECT_DOUBLE_EQ(later.first_token_s, (1.4 - 0.5) + 1.3) << "the step of 400 tokens has begun";
  EXPECT_DOUBLE_EQ(later.compute_s, 1.3);
}

TEST_F(EngineClockTest, APromptUsesTheRestOfTheStepOfAnOlderPrompt) {
  clock.Sent(1, 0, 0, 1400, kPlain);
  // Steps of 1000 tokens, of 400 + 600 tokens, and of 100 tokens.
  EXPECT_DOUBLE_EQ(Predicted(0, 700), 2 + 2 + 1.1);
  EXPECT_DOUBLE_EQ(Predicted(0, 600), 2 + 2);
}

TEST_F(EngineClockTest, DecodingRequestsSlowEachStepAndTakeTheirTokens) {
  clock.Sent(1, 0, 0, 500, kWhole);
  clock.FirstToken(1, 5, kWhole);
  EXPECT_EQ(clock.prefills(), 0u);
  EXPECT_EQ(clock.decodes(), 1u);
  const double decode_s = 0.01 + 1e-5 * 500;
  // The prompt arrives when a step ends. 999 tokens fit beside the decoding request's token.
  const auto full = clock.Predict(5, 0, 999, kWhole);
  EXPECT_NEAR(full.first_token_s, 1 + 0.999 + 1e-6 * 999 * 499.5 + decode_s, 1e-9);
  const auto more = clock.Predict(5, 0, 1000, kWhole);
  EXPECT_NEAR(more.first_token_s, full.first_token_s + 1 + 0.001 + 1e-6 * 999.5 + decode_s, 1e-9);
  // A prompt that arrives in the middle of a step waits for the end of the step.
  const double step_s = 1 + decode_s;
  EXPECT_NEAR(clock.Predict(5 + 0.25 * step_s, 0, 999, kWhole).first_token_s,
              0.75 * step_s + full.first_token_s, 1e-9);
  clock.Ended(1);
  EXPECT_EQ(clock.decodes(), 0u);
  EXPECT_DOUBLE_EQ(clock.Predict(5, 0, 999, kPlain).first_token_s, 1.999);
}

TEST_F(EngineClockTest, AReportCorrectsTheStateOfTheEngine) {
  clock.Sent(1, 0, 0, 1000, kPlain);
  clock.Sent(2, 0, 0, 1000, kPlain);
  EXPECT_DOUBLE_EQ(Predicted(3, 100), (4 - 3) + 1.1) << "both steps take 2 s";
  // The first step took 3 s. So the second step begins now, with 999 tokens beside the decoding
  // request.
  clock.FirstToken(1, 3, kPlain);
  EXPECT_NEAR(Predicted(3, 1), 1.999 + 1.002, 1e-9);
}

TEST_F(EngineClockTest, AnObservationIsTheWorkOfAPromptThatWasAlone) {
  clock.Sent(1, 5, 0, 1500, kPlain);
  const auto observed = clock.FirstToken(1, 9, kPlain);
  ASSERT_TRUE(observed);
  EXPECT_DOUBLE_EQ(observed->seconds, 4);
  EXPECT_DOUBLE_EQ(observed->work[WorkPart::kSteps], 2);
  EXPECT_DOUBLE_EQ(observed->work[WorkPart::kPrefillTokens], 1500);
  EXPECT_DOUBLE_EQ(observed->work[WorkPart::kPrefillPairs], 1000 * 500 + 500 * 1250);
  EXPECT_DOUBLE_EQ(observed->work[WorkPart::kDecodeTokens], 0);
}

TEST_F(EngineClockTest, PromptsThatOverlapOnAnEngineTeachNothing) {
  clock.Sent(1, 0, 0, 1500, kPlain);
  clock.Sent(2, 1, 0, 800, kPlain);
  EXPECT_FALSE(clock.FirstToken(1, 4, kPlain));
  EXPECT_FALSE(clock.FirstToken(2, 5, kPlain)) << "its computation began during the first prompt";
  EXPECT_FALSE(clock.FirstToken(3, 6, kPlain)) << "the request is not known";
  EXPECT_DOUBLE_EQ(clock.slowdown(), 1);
}

TEST_F(EngineClockTest, TheEngineMayFindAnotherContextThanExpected) {
  clock.Sent(1, 0, 0, 800, kPlain);
  clock.Admitted(1, 600);
  EXPECT_DOUBLE_EQ(Predicted(0.5, 100), (1.2 - 0.5) + 1.1);
  clock.Admitted(1, 5000);
  EXPECT_DOUBLE_EQ(Predicted(0.5, 100), (1.001 - 0.5) + 1.1) << "the last token is computed";
  clock.Admitted(7, 100);  // the request is not known
}

TEST_F(EngineClockTest, ARequestThatEndedWaitsNoLonger) {
  clock.Sent(1, 0, 0, 1000, kPlain);
  clock.Sent(2, 0, 0, 1000, kPlain);
  clock.Ended(2);
  EXPECT_EQ(clock.prefills(), 1u);
  EXPECT_DOUBLE_EQ(Predicted(0, 1), 2 + 1.001);
  EXPECT_FALSE(clock.FirstToken(2, 1, kPlain)) << "the request is not known any more";
}

// With many prompts in the queue, the prediction uses sums over the prompts. After any history, the
// sums must cover exactly the prompts that wait now.
TEST_F(EngineClockTest, ALongQueueIsTheSumOfItsPrompts) {
  for (const bool reports : {false, true}) {
    EngineClock used(kStepTokens);
    std::mt19937 random(7);
    const auto below = [&random](uint32_t most) { return static_cast<int64_t>(random() % most); };
    double now_s = 0;
    uint64_t next = 0;
    for (int i = 0; i < 2000; ++i) {
      now_s += 0.1 * static_cast<double>(below(20));
      used.Sent(next++, now_s, below(3000), below(4000), kWhole);
      const uint64_t some = next - 1 - random() % std::min<uint64_t>(next, 20);
      const int64_t kind = below(4);
      if (kind == 0) used.Admitted(some, below(3000));
      if (kind == 1) used.Ended(some);
      if (kind == 2 && reports) used.FirstToken(some, now_s, kWhole);
    }
    for (uint64_t request = 0; request < next; ++request) used.Ended(request);
    ASSERT_EQ(used.prefills() + used.decodes(), 0u);
    EngineClock fresh(kStepTokens);
    for (uint64_t i = 0; i < 20; ++i) {
      used.Sent(next + i, now_s, 0, 700, kWhole);
      fresh.Sent(next + i, now_s, 0, 700, kWhole);
    }
    EXPECT_DOUBLE_EQ(used.Predict(now_s, 0, 500, kWhole).first_token_s / used.slowdown(),
                     fresh.Predict(now_s, 0, 500, kWhole).first_token_s)
        << reports;
  }
}

// The clock keeps a part of its prediction until its state changes.
TEST_F(EngineClockTest, APredictionDependsOnTheStateOnly) {
  std::mt19937 random(11);
  const auto below = [&random](uint32_t most) { return static_cast<int64_t>(random() % most); };
  double now_s = 0;
  uint64_t next = 0;
  for (int i = 0; i < 3000; ++i) {
    now_s += 0.1 * static_cast<double>(below(15));
    const uint64_t some = next - std::min<uint64_t>(next, random() % 10);
    switch (below(5)) {
      case 0:
        clock.Sent(next++, now_s, below(3000), below(1500), kWhole);
        break;
      case 1:
        clock.Admitted(some, below(3000));
        break;
      case 2:
        clock.Ended(some);
        break;
      case 3:
        clock.FirstToken(some, now_s, kWhole);
        break;
      default:
        clock.ScaleSlowdown(random() % 2 == 0 ? 1.25 : 0.8);
        break;
    }
    EngineClock changed = clock;
    changed.ScaleSlowdown(1);  // drops the part of the prediction that the clock keeps
    const StepCost& cost = i / 100 % 2 == 0 ? kPlain : kWhole;
    for (const double ahead_s : {0.0, 0.3, 7.0}) {
      for (const int64_t tokens : {1, 900, 2500}) {
        ASSERT_EQ(clock.Predict(now_s + ahead_s, 100, tokens, cost).first_token_s,
                  changed.Predict(now_s + ahead_s, 100, tokens, cost).first_token_s)
            << i;
      }
    }
  }
}

// A long queue is predicted by its sums. Each prompt takes 2 s. The engine has reported no first
// token for 90 s.
TEST_F(EngineClockTest, ALateEngineWithALongQueueIsNotIdle) {
  clock.Sent(1, 0, 0, 100, kPlain);
  clock.FirstToken(1, 1.1, kPlain);
  clock.Ended(1);
  for (uint64_t request = 2; request < 22; ++request) {
    clock.Sent(request, 10, 0, kStepTokens, kPlain);
    if (request < 4) continue;
    const double queue_s = 2 * static_cast<double>(request - 1);
    EXPECT_NEAR(Predicted(100, 100), queue_s - 2 - 0.05 + 1.1, 1e-9) << request;
  }
}

TEST_F(EngineClockTest, ALateEngineDelaysAllPromptsOfItsQueue) {
  clock.Sent(1, 0, 0, 100, kPlain);
  clock.FirstToken(1, 1.1, kPlain);
  clock.Ended(1);
  clock.Sent(2, 10, 0, 1000, kPlain);
  clock.Sent(3, 10, 0, 1000, kPlain);
  // The first tokens are expected at 12 s and at 14 s. At 20 s, both reports are missing. A report
  // takes up to 50 ms, so the first token of the first prompt comes at 19.95 s or later.
  EXPECT_NEAR(Predicted(20, 100), (19.95 + 2) + 1.1 - 20, 1e-9);
}

TEST_F(EngineClockTest, AVeryLongPromptCostsNoLongPrediction) {
  for (uint64_t i = 0; i < 2000; ++i) clock.Sent(i, 0, 0, 1, kPlain);
  for (uint64_t i = 0; i < 2000; ++i) clock.FirstToken(i, 1, kPlain);
  ASSERT_EQ(clock.decodes(), 2000u) << "the requests leave no room for prompts in a step";
  constexpr int64_t kTokens = int64_t{1} << 40;
  EXPECT_NEAR(Predicted(1, kTokens) / (0.001 * kTokens + kTokens / 1000), 1, 1e-6);
}

TEST_F(EngineClockTest, WithoutReportsThePredictionIsTakenForTheState) {
  clock.Sent(1, 0, 0, 3000, kPlain);  // predicted to end after 6 s
  clock.Sent(2, 100, 0, 500, kPlain);
  EXPECT_EQ(clock.decodes(), 1u);
  EXPECT_EQ(clock.prefills(), 1u);
  EXPECT_NEAR(Predicted(100, 400), 1.9, 1e-9) << "the second prompt and this prompt share a step";
  EXPECT_FALSE(clock.FirstToken(1, 101, kPlain)) << "the report comes very late";
  EXPECT_DOUBLE_EQ(clock.slowdown(), 1);
}

TEST_F(EngineClockTest, AnEngineThatReportsIsNotReadyBeforeItsReport) {
  clock.Sent(1, 0, 0, 1000, kPlain);
  clock.FirstToken(1, 2, kPlain);
  clock.Ended(1);
  clock.Sent(2, 10, 0, 1000, kPlain);  // predicted to end at second 12
  // The first token may come now. Its report takes up to 50 ms. The request then decodes in steps
  // of 1 s, and a prompt waits for the end of such a step.
  EXPECT_NEAR(Predicted(20, 500), 0.95 + 1.5, 1e-9);
  clock.FirstToken(2, 20, kPlain);
  EXPECT_NEAR(Predicted(20, 500), 1.5, 1e-9);
}

TEST_F(EngineClockTest, TheEndOfADecodingStepIsAGuess) {
  clock.Sent(1, 0, 0, 500, kPlain);
  clock.FirstToken(1, 1.5, kPlain);
  // Steps end at 1.5 s, 2.5 s and so on. The clock learns nothing from a short prompt.
  clock.Sent(2, 8.2, 0, 500, kPlain);
  EXPECT_FALSE(clock.FirstToken(2, 10, kPlain));
  clock.Ended(2);
  // A long prompt takes longer than three decoding steps. It has steps of 999 and 501 tokens, from
  // 20 s on.
  clock.Sent(3, 19.2, 0, 1500, kPlain);
  const auto observed = clock.FirstToken(3, 23.6, kPlain);
  ASSERT_TRUE(observed);
  EXPECT_NEAR(observed->seconds, 3.6, 1e-9);
  EXPECT_DOUBLE_EQ(observed->work[WorkPart::kSteps], 2);
  EXPECT_DOUBLE_EQ(observed->work[WorkPart::kDecodeTokens], 2);
  EXPECT_DOUBLE_EQ(observed->work[WorkPart::kDecodeContext], 2 * 500);
}

TEST_F(EngineClockTest, ASlowEngineIsLearned) {
  double now_s = 0;
  for (uint64_t request = 1; request <= 40; ++request) {
    clock.Sent(request, now_s, 0, 1000, kPlain);
    now_s += 3 * 2;  // the predicted time is 2 s
    clock.FirstToken(request, now_s, kPlain);
    clock.Ended(request);
  }
  EXPECT_NEAR(clock.slowdown(), 3, 0.01);
  EXPECT_NEAR(Predicted(now_s, 1000), 6, 0.02);
}

TEST_F(EngineClockTest, ObservationsAreThoseOfAnAverageEngine) {
  clock.ScaleSlowdown(4);
  clock.Sent(1, 0, 0, 1000, kPlain);
  const auto observed = clock.FirstToken(1, 8, kPlain);
  ASSERT_TRUE(observed);
  EXPECT_DOUBLE_EQ(observed->seconds, 2);
}

TEST_F(EngineClockTest, SingleErrorsDoNotChangeTheSlowdown) {
  double now_s = 0;
  for (uint64_t request = 1; request <= 100; ++request) {
    clock.Sent(request, now_s, 0, 1000, kPlain);
    now_s += request % 10 == 5 ? 6 : 2;  // a request of another router, for example
    clock.FirstToken(request, now_s, kPlain);
    clock.Ended(request);
  }
  EXPECT_DOUBLE_EQ(clock.slowdown(), 1);
}

}  // namespace
}  // namespace kvcast
