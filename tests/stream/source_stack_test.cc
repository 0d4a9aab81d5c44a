// The stack depth of the source's calls does not depend on the number of held batches.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pthread.h>

#include "tests/stream/source_harness.h"

namespace kvcast::stream {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr uint64_t kHeld = 8100;

// Batch 0 arrives after the source holds the batches 1 to kHeld. No batch can be decoded, so each
// batch resets the state.
void* FillTheHole(void* status) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.End();
  for (uint64_t seq = 1; seq <= kHeld; ++seq) source.Live(seq);
  source.next_result = source.other_results = BatchResult::kUndecodable;
  source.Reply(0);
  *static_cast<SourceStatus*>(status) = source.status();
  return nullptr;
}

TEST(SourceStack, UndecodableHeldBatchesNeedNoStackEach) {
  SourceStatus status;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, FillTheHole, &status), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(status.batches, kHeld + 1);
  EXPECT_EQ(status.next_seq, kHeld + 1);
}

}  // namespace
}  // namespace kvcast::stream
