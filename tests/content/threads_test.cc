// With the real threads of the TransferEngine and of the host backend, every block holds the right
// bytes. ThreadSanitizer also detects data races in the offload path.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/content/content_run.h"
#include "tests/content/mixes.h"

namespace kvcast::content {
namespace {

TEST(ContentThreads, EveryBlockHoldsTheRightBytes) {
  RunCounts sum;
  for (RunConfig config : Mixes()) {
    SCOPED_TRACE(config.name);
    config.threads = true;
    config.operations = 600;
    ContentRun run(config);
    run.Run();
    EXPECT_EQ(run.findings().sum(), 0) << run.findings().first;
    sum.Add(run.counts());
  }
  RecordProperty("counts", sum.Text());
  EXPECT_GT(sum.stores, 500) << sum.Text();
  EXPECT_GT(sum.loads, 50) << sum.Text();
  EXPECT_GT(sum.flushes, 200) << sum.Text();
  EXPECT_GT(sum.preemptions, 50) << sum.Text();
}

}  // namespace
}  // namespace kvcast::content
