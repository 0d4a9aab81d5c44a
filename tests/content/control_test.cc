// These tests show that the content test detects wrong bytes. Each test except the first omits one
// of the rules that keep bytes right, and must find wrong bytes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/base/sanitizers.h"
#include "tests/content/content_run.h"
#include "tests/content/mixes.h"

namespace kvcast::content {
namespace {

// Sums the findings of a few seeds.
Findings FindingsOf(const std::string& mix, Fault fault) {
  Findings sum;
  for (uint64_t seed = 1; seed <= (kSanitized ? 2u : 4u); ++seed) {
    RunConfig config = Mix(mix);
    config.fault = fault;
    config.seed = seed;
    ContentRun run(config);
    run.Run();
    sum.before_use += run.findings().before_use;
    sum.after_use += run.findings().after_use;
    sum.in_host += run.findings().in_host;
  }
  ::testing::Test::RecordProperty("before_use", static_cast<int>(sum.before_use));
  ::testing::Test::RecordProperty("after_use", static_cast<int>(sum.after_use));
  ::testing::Test::RecordProperty("in_host", static_cast<int>(sum.in_host));
  return sum;
}

TEST(ContentControl, NothingIsFoundIfNoRuleIsOmitted) {
  for (const char* mix : {"FullWindowConnector", "FullWindowSimpleEager", "FullWindowSimpleLazy"}) {
    EXPECT_EQ(FindingsOf(mix, Fault::kNone).sum(), 0) << mix;
  }
}

TEST(ContentControl, StoresThatAreNotFlushedReadTheBytesOfLaterSteps) {
  EXPECT_GT(FindingsOf("FullWindowConnector", Fault::kNoFlush).in_host, 0);
  EXPECT_GT(FindingsOf("ThreeSizesConnectorChunksOf3", Fault::kNoFlush).in_host, 0);
}

TEST(ContentControl, StoresWithoutPinsReadTheBytesOfLaterSteps) {
  EXPECT_GT(FindingsOf("FullWindowSimpleEager", Fault::kNoPin).in_host, 0);
  EXPECT_GT(FindingsOf("FullWindowSimpleLazy", Fault::kNoPin).in_host, 0);
}

TEST(ContentControl, LoadsWithoutPinsWriteIntoBlocksOfOthers) {
  const Findings findings = FindingsOf("FullSimpleLazy", Fault::kNoPin);
  EXPECT_GT(findings.before_use + findings.after_use, 0);
}

TEST(ContentControl, CopiesThatDoNotWaitForTheComputationReadAndWriteTooEarly) {
  for (const char* mix : {"FullWindowConnector", "FullWindowSimpleEager", "FullWindowSimpleLazy"}) {
    const Findings findings = FindingsOf(mix, Fault::kNoEvent);
    EXPECT_GT(findings.in_host, 0) << mix;
    EXPECT_GT(findings.before_use + findings.after_use, 0) << mix;
  }
}

TEST(ContentControl, StoresBeforeTheStepThatComputesTheirBlocksHaveWrongBytes) {
  EXPECT_GT(FindingsOf("FullConnector", Fault::kStoreTooEarly).in_host, 0);
  // The fault affects only blocks that one request computes and another request of the same step
  // reuses.
  EXPECT_GT(FindingsOf("FullSimpleEager", Fault::kStoreTooEarly).in_host, 0);
}

TEST(ContentControl, RequestsThatContinueBeforeTheirLoadEndsReadWrongBytes) {
  for (const char* mix : {"FullWindowConnector", "FullSimpleEager", "FullWindowSimpleLazy"}) {
    EXPECT_GT(FindingsOf(mix, Fault::kReleasedEarly).before_use, 0) << mix;
  }
}

TEST(ContentControl, ALateLoadWritesToBlocksThatAreFreedTooEarly) {
  for (const char* mix : {"FullConnector", "FullWindowConnector"}) {
    const Findings findings = FindingsOf(mix, Fault::kFreedWhenLate);
    EXPECT_GT(findings.before_use + findings.after_use, 0) << mix;
  }
}

TEST(ContentControl, VllmsRulesAllowWrongBytes) {
  EXPECT_GT(FindingsOf("FullWindowConnectorChunksOf3", Fault::kLikeVllm).sum(), 0);
}

TEST(ContentControl, BytesThatMoveAfterTheirCopyHasEndedAreDetected) {
  for (const char* mix : {"FullWindowConnector", "FullSimpleEager", "FullWindowSimpleLazy"}) {
    const Findings findings = FindingsOf(mix, Fault::kReportedEarly);
    EXPECT_GT(findings.in_host, 0) << mix;
    EXPECT_GT(findings.before_use + findings.after_use, 0) << mix;
  }
}

}  // namespace
}  // namespace kvcast::content
