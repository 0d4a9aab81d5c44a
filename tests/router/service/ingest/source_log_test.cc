// The log lines of a source whose stream is synced, but whose events could not all be applied.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/source_log.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/index_events.h"
#include "tests/support/log_lines.h"

namespace kvcast::router {
namespace {

using kvcast::testing::BatchOfOneArray;
using kvcast::testing::Full;
using kvcast::testing::LogLines;
using kvcast::testing::Registered;

TEST(SourceLog, ASuspectSourceWithASyncedStreamHasTheReasonBadEvents) {
  PrefixIndex index;
  FleetWorker worker = {.id = WorkerId(3)};
  worker.config.worker = Registered({Full()});
  worker.config.worker.name = "w";
  worker.source = WorkerIngest::Create(worker.id, worker.config, index).value();
  LogLines lines(LogLevel::kInfo, LogFormat::kText);
  SourceLog log(&lines.log());

  SourceStatus stream;
  stream.state = SourceState::kSynced;
  stream.reason = SourceReason::kNone;
  stream.weight = 1;
  log.NoteState(worker, stream);
  EXPECT_EQ(lines.With({"source=w", "to=synced reason=none weight=1 "}).size(), 1u);
  worker.source->OnBatch(BatchOfOneArray("BlockRemoved", 0x05));
  log.NoteState(worker, stream);
  log.NoteState(worker, stream);
  EXPECT_EQ(lines.With({"source=w", "from=synced to=suspect reason=bad_events weight=0 "}).size(),
            1u);
}

}  // namespace
}  // namespace kvcast::router
