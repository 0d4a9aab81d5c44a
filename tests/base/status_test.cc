// An ok Status is empty; an error carries a code and one line. Result holds a value or a Status.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/core/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace kvcast {
namespace {

TEST(Status, DefaultIsOkAndEmpty) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_TRUE(status.message().empty());
}

TEST(Status, ErrorNamesItsCodeInText) {
  const Status status(StatusCode::kInvalidArgument, "window must be positive");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString(), "invalid_argument: window must be positive");
}

TEST(Result, HoldsAMoveOnlyValue) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(**result, 7);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

TEST(Result, HoldsAnErrorInstead) {
  const Result<int> result(Status(StatusCode::kLimit, "too many"));
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kLimit);
}

}  // namespace
}  // namespace kvcast
