// Feedback of the tokens that an engine really had.
// SPDX-License-Identifier: Apache-2.0
#include "router/reuse_feedback.h"

#include <gtest/gtest.h>

namespace kvcast::router {
namespace {

TEST(ReuseFeedback, PromisesThatStayWrongAreRefuted) {
  ReuseFeedback feedback;
  for (int i = 1; i < ReuseFeedback::kMinAnswers; ++i) EXPECT_FALSE(feedback.Note(1000, 800));
  EXPECT_TRUE(feedback.Note(1000, 800));
  EXPECT_FALSE(feedback.Note(1000, 800)) << "begins anew";
}

TEST(ReuseFeedback, OneWrongAnswerAmongManyIsNot) {
  ReuseFeedback feedback;
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(feedback.Note(1000, i % 32 == 0 ? 0 : 1000));
}

TEST(ReuseFeedback, MoreThanPromisedIsFine) {
  ReuseFeedback feedback;
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(feedback.Note(100, 1000));
  EXPECT_EQ(feedback.missing_share(), 0);
}

TEST(ReuseFeedback, OldAnswersFade) {
  ReuseFeedback feedback;
  for (int i = 1; i < ReuseFeedback::kMinAnswers; ++i) feedback.Note(1000, 950);
  EXPECT_NEAR(feedback.missing_share(), 0.05, 1e-9);
  for (int i = 0; i < 500; ++i) EXPECT_FALSE(feedback.Note(1000, 1000));
  EXPECT_LT(feedback.missing_share(), 1e-6);
}

}  // namespace
}  // namespace kvcast::router
