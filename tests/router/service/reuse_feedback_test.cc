// Reuse feedback compares predicted tokens with the tokens that an engine really reused.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/reuse_feedback.h"

#include <gtest/gtest.h>

namespace kvcast::router {
namespace {

TEST(ReuseFeedback, RepeatedWrongPredictionsAreRefuted) {
  ReuseFeedback feedback;
  for (int i = 1; i < ReuseFeedback::kMinAnswers; ++i) EXPECT_FALSE(feedback.Note(1000, 800));
  EXPECT_TRUE(feedback.Note(1000, 800));
  EXPECT_FALSE(feedback.Note(1000, 800)) << "the counts start again from 0";
}

TEST(ReuseFeedback, AFewWrongAnswersAmongManyRefuteNothing) {
  ReuseFeedback feedback;
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(feedback.Note(1000, i % 32 == 0 ? 0 : 1000));
}

TEST(ReuseFeedback, MoreReuseThanPredictedRefutesNothing) {
  ReuseFeedback feedback;
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(feedback.Note(100, 1000));
  EXPECT_EQ(feedback.missing_share(), 0);
}

TEST(ReuseFeedback, OldAnswersLoseTheirWeight) {
  ReuseFeedback feedback;
  for (int i = 1; i < ReuseFeedback::kMinAnswers; ++i) feedback.Note(1000, 950);
  EXPECT_NEAR(feedback.missing_share(), 0.05, 1e-9);
  for (int i = 0; i < 500; ++i) EXPECT_FALSE(feedback.Note(1000, 1000));
  EXPECT_LT(feedback.missing_share(), 1e-6);
}

TEST(ReuseFeedback, ThreeEqualDifferencesOfTheLastTenAreAContradiction) {
  ReuseFeedback feedback;
  for (const int64_t difference : {-16, 0, 0, 0, -16, 0, 0, 0, 0, 0, -16}) {
    feedback.Compare(difference);
    EXPECT_EQ(feedback.contradiction(), std::nullopt)
        << "there are never three equal differences among the last ten";
  }
  feedback.Compare(-16);
  EXPECT_EQ(feedback.contradiction(), -16);
}

TEST(ReuseFeedback, DifferencesOfAnotherSizeOrSignAreCountedSeparately) {
  ReuseFeedback feedback;
  for (const int64_t difference : {-16, 16, -32, 32, -16, 16, -48, 0, 0, 0}) {
    feedback.Compare(difference);
  }
  EXPECT_EQ(feedback.contradiction(), std::nullopt);
}

TEST(ReuseFeedback, AHundredCorrectAnswersEndAContradiction) {
  ReuseFeedback feedback;
  const auto agree = [&feedback](int times) {
    for (int i = 0; i < times; ++i) feedback.Compare(0);
  };
  for (int i = 0; i < 3; ++i) feedback.Compare(-16);
  agree(ReuseFeedback::kAgreeing - 1);
  EXPECT_EQ(feedback.contradiction(), -16);
  feedback.Compare(-32);
  agree(ReuseFeedback::kAgreeing - 1);
  EXPECT_EQ(feedback.contradiction(), -16) << "the answers must agree consecutively";
  agree(1);
  EXPECT_EQ(feedback.contradiction(), std::nullopt);
}

TEST(ReuseFeedback, ARefutationKeepsTheContradiction) {
  ReuseFeedback feedback;
  for (int i = 0; i < 3; ++i) feedback.Compare(-16);
  for (int i = 0; i < ReuseFeedback::kMinAnswers; ++i) feedback.Note(1000, 800);
  EXPECT_EQ(feedback.contradiction(), -16);
}

}  // namespace
}  // namespace kvcast::router
