// The audit compares the index's hit with the engine's hit. Before the comparison, the audit
// applies exactly the batches that the engine published before the lookup. After a lost or repeated
// batch, the audit applies no more batches. It still compares admissions that need no later batch.
// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_audit.h"

#include <gtest/gtest.h>

namespace kvcast::tools {
namespace {

WorkerConfig OneFullGroup() {
  return {.name = "w",
          .groups = {{.kind = SpecKind::kFullAttention, .block_size = 16}},
          .hash_block_size = 16,
          .alignment = 16};
}

std::shared_ptr<const EventBatch> StoreOf(uint64_t hash) {
  BlockStored stored;
  stored.block_hashes = {BlockHash::FromUnsigned(hash)};
  stored.block_size = 16;
  stored.medium = kMediumGpu;
  stored.group_idx = 0;
  auto batch = std::make_shared<EventBatch>();
  batch->events.emplace_back(stored);
  return batch;
}

AuditedAdmission AuditedHit(int64_t hit, uint64_t published) {
  const std::vector<BlockHash> chain = {BlockHash::FromUnsigned(1), BlockHash::FromUnsigned(2)};
  return {.request = 7,
          .hit_tokens = hit,
          .total_tokens = 40,
          .published = published,
          .names = {.contents = nullptr,
                    .chain = std::make_shared<const std::vector<BlockHash>>(chain)}};
}

TEST(ExactnessAudit, EvaluatesAfterExactlyTheBatchesPublishedBeforeTheLookup) {
  ExactnessAudit audit(1, OneFullGroup(), 16);
  audit.OnBatch(0, 0, StoreOf(1));
  audit.OnBatch(0, 1, StoreOf(2));  // after the lookup: must not count
  audit.OnAdmission(0, AuditedHit(16, 1));
  EXPECT_EQ(audit.totals().compared, 1);
  EXPECT_EQ(audit.totals().equal, 1);
}

TEST(ExactnessAudit, WaitsForMissingBatches) {
  ExactnessAudit audit(1, OneFullGroup(), 16);
  audit.OnAdmission(0, AuditedHit(32, 2));
  EXPECT_EQ(audit.CompareWaiting(), 1);
  audit.OnBatch(0, 0, StoreOf(1));
  EXPECT_EQ(audit.CompareWaiting(), 1);
  audit.OnBatch(0, 1, StoreOf(2));
  EXPECT_EQ(audit.CompareWaiting(), 0);
  EXPECT_EQ(audit.totals().equal, 1);
}

// The demo waits while this count grows. Heartbeats have no events and never end, so the count must
// not include them.
TEST(ExactnessAudit, CountsOnlyBatchesWithEvents) {
  ExactnessAudit audit(1, OneFullGroup(), 16);
  audit.OnBatch(0, 0, StoreOf(1));
  audit.OnBatch(0, 1, std::make_shared<EventBatch>());
  EXPECT_EQ(audit.batches(), 1u);
}

TEST(ExactnessAudit, CountsAndNamesADifference) {
  ExactnessAudit audit(1, OneFullGroup(), 16);
  audit.OnBatch(0, 0, StoreOf(1));
  audit.OnAdmission(0, AuditedHit(32, 1));
  audit.OnAdmission(0, AuditedHit(0, 1));
  const AuditTotals totals = audit.totals();
  EXPECT_EQ(totals.compared, 2);
  EXPECT_EQ(totals.equal, 0);
  EXPECT_EQ(totals.under_tokens, 16);
  EXPECT_EQ(totals.over_tokens, 16);
  EXPECT_EQ(totals.first_difference,
            "request 7 after 1 batches: index 16 tokens, engine 32 tokens");
}

TEST(ExactnessAudit, LostBatchLeavesItsAdmissionsPending) {
  ExactnessAudit audit(1, OneFullGroup(), 16);
  audit.OnBatch(0, 1, StoreOf(2));
  audit.OnAdmission(0, AuditedHit(16, 2));
  EXPECT_EQ(audit.CompareWaiting(), 1);
  EXPECT_EQ(audit.totals().compared, 0);
}

TEST(ExactnessAudit, RepeatedBatchLeavesLaterAdmissionsPending) {
  ExactnessAudit audit(1, OneFullGroup(), 16);
  audit.OnBatch(0, 0, StoreOf(1));
  audit.OnBatch(0, 0, StoreOf(1));
  audit.OnBatch(0, 1, StoreOf(2));
  audit.OnAdmission(0, AuditedHit(16, 1));
  audit.OnAdmission(0, AuditedHit(32, 2));
  EXPECT_EQ(audit.totals().compared, 1);
  EXPECT_EQ(audit.CompareWaiting(), 1);
}

}  // namespace
}  // namespace kvcast::tools
