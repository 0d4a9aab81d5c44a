// The metrics page contains the counters of a worker, and Prometheus' own linter accepts the page.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "src/base/clock.h"
#include "src/base/version.h"

namespace kvcast::router {
namespace {

ServiceMetrics Example() {
  ServiceMetrics metrics;
  metrics.queries = 12;
  WorkerMetrics worker;
  worker.name = "engine \"0\"";
  worker.state = SourceState::kSynced;
  worker.stream.batches = 7;
  worker.stream.next_seq = 9;
  worker.wire.apply_ns = 2'500'000'000;
  worker.wire.decode.rejected[static_cast<size_t>(Reject::kBadType)] = 2;
  worker.index.stored_blocks = 40;
  worker.index.residencies = 30;
  worker.verdict = {SchemeState::kMatched,
                    ChainScheme{HashAlgorithm::kSha256Cbor, "a \"seed\"", {1}, 16}, ""};
  worker.scheme.matched = 5;
  worker.scheme.skipped[static_cast<size_t>(SchemeSkip::kSparse)] = 3;
  worker.index.unnamed = 6;
  worker.index.named_late = 2;
  worker.index.ambiguous = 3;
  worker.index.bad_stores = 4;
  worker.index.forgotten_names = 5;
  worker.index.unnamed_blocks[static_cast<size_t>(UnnamedReason::kSparse)] = 8;
  metrics.workers = {worker};
  return metrics;
}

bool HasLine(const std::string& page, const std::string& line) {
  return ("\n" + page).find("\n" + line + "\n") != std::string::npos;
}

TEST(Metrics, OnlyWorkersWithALogHaveItsMetrics) {
  ServiceMetrics metrics = Example();
  EXPECT_EQ(RenderMetrics(metrics).find("kvcast_event_log_"), std::string::npos);
  metrics.workers.push_back(metrics.workers[0]);
  metrics.workers[1].name = "logged";
  metrics.workers[1].log = {
      .state = event_log::BridgeState::kSilent,
      .error = "",
      .replica = {.snapshots = 1, .adoptions = 2, .gaps = 3, .bad_records = 4},
      .rewinds = 5,
      .mismatches = 6};
  const std::string page = RenderMetrics(metrics);
  for (const char* line : {R"(kvcast_event_log_state{worker="logged",state="silent"} 1)",
                           R"(kvcast_event_log_state{worker="logged",state="following"} 0)",
                           R"(kvcast_event_log_snapshots_total{worker="logged"} 1)",
                           R"(kvcast_event_log_adoptions_total{worker="logged"} 2)",
                           R"(kvcast_event_log_gaps_total{worker="logged"} 3)",
                           R"(kvcast_event_log_bad_records_total{worker="logged"} 4)",
                           R"(kvcast_event_log_rewinds_total{worker="logged"} 5)",
                           R"(kvcast_event_log_mismatches_total{worker="logged"} 6)"}) {
    EXPECT_TRUE(HasLine(page, line)) << line;
  }
  EXPECT_EQ(page.find(R"(kvcast_event_log_state{worker="engine)"), std::string::npos);
}

TEST(Metrics, GivesCountersByWorkerStateAndReason) {
  const std::string page = RenderMetrics(Example());
  EXPECT_TRUE(HasLine(page, "kvcast_queries_total 12")) << page;
  EXPECT_TRUE(HasLine(page, R"(kvcast_source_batches_total{worker="engine \"0\""} 7)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_source_apply_seconds_total{worker="engine \"0\""} 2.5)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_source_next_sequence{worker="engine \"0\""} 9)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_index_stored_blocks_total{worker="engine \"0\""} 40)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_index_residencies{worker="engine \"0\""} 30)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_source_state{worker="engine \"0\"",state="synced"} 1)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_source_state{worker="engine \"0\"",state="cleared"} 0)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_wire_rejected_events_total{worker="engine \"0\"",reason=")" +
                                std::string(RejectName(Reject::kBadType)) + "\"} 2"));
  EXPECT_TRUE(HasLine(page, "# TYPE kvcast_index_residencies gauge"));
}

TEST(Metrics, CountsWrongStatesAndTheirRepairs) {
  ServiceMetrics metrics = Example();
  SourceStatus& stream = metrics.workers[0].stream;
  stream.snapshots = 1;
  stream.snapshot_failures = 2;
  stream.digest_checks = 3;
  stream.digest_mismatches = 4;
  stream.repairs = 5;
  stream.repair_failures = 6;
  stream.quarantines = 7;
  const std::string page = RenderMetrics(metrics);
  const auto has = [&page](const char* name, int value) {
    return HasLine(page, "kvcast_source_" + std::string(name) +
                             R"(_total{worker="engine \"0\""} )" + std::to_string(value));
  };
  EXPECT_TRUE(has("snapshots", 1)) << page;
  EXPECT_TRUE(has("snapshot_failures", 2));
  EXPECT_TRUE(has("digest_checks", 3));
  EXPECT_TRUE(has("digest_mismatches", 4));
  EXPECT_TRUE(has("repairs", 5));
  EXPECT_TRUE(has("repair_failures", 6));
  EXPECT_TRUE(has("quarantines", 7));
}

TEST(Metrics, ShowsHowFarASourceIsBehind) {
  ServiceMetrics metrics = Example();
  SourceStatus& stream = metrics.workers[0].stream;
  stream.lag = 12;
  stream.weight = 0.25;
  stream.replay_waits = 3;
  metrics.workers[0].rejects = {0, 5};
  metrics.workers[0].rejects.resize(kMaxGroups + 1);
  metrics.workers[0].rejects[kMaxGroups] = 2;
  metrics.log = {.lines = 7, .suppressed = 8, .lost = 9};
  const std::string page = RenderMetrics(metrics);
  const std::string worker = R"(worker="engine \"0\"")";
  EXPECT_TRUE(HasLine(page, "kvcast_source_lag_batches{" + worker + "} 12")) << page;
  EXPECT_TRUE(HasLine(page, "kvcast_source_weight{" + worker + "} 0.25"));
  EXPECT_TRUE(HasLine(page, "kvcast_source_replay_waits_total{" + worker + "} 3"));
  const std::string rejected = "kvcast_index_rejected_events_total{" + worker;
  EXPECT_TRUE(HasLine(page, rejected + R"(,group="1"} 5)"));
  EXPECT_TRUE(HasLine(page, rejected + R"(,group="out_of_range"} 2)"));
  EXPECT_EQ(page.find(rejected + R"(,group="0")"), std::string::npos);
  EXPECT_TRUE(HasLine(page, "kvcast_log_lines_total 7"));
  EXPECT_TRUE(HasLine(page, "kvcast_log_suppressed_lines_total 8"));
  EXPECT_TRUE(HasLine(page, "kvcast_log_lost_lines_total 9"));
}

// Returns the value of a metric without labels.
double ValueOf(const std::string& page, const std::string& metric) {
  const size_t line = page.find("\n" + metric + " ");
  return line == std::string::npos ? -1 : std::stod(page.substr(line + metric.size() + 2));
}

TEST(Metrics, NameTheBuildAndTheProcess) {
  const std::string page = RenderMetrics({});
  EXPECT_NE(page.find("\nkvcast_build_info{version=\"" + std::string(Version()) + "\",compiler=\""),
            std::string::npos)
      << page;
  const double resident = ValueOf(page, "process_resident_memory_bytes");
  EXPECT_GT(resident, 1 << 20);
  EXPECT_GT(ValueOf(page, "process_virtual_memory_bytes"), resident);
  EXPECT_GT(ValueOf(page, "process_cpu_seconds_total"), 0);
  const double open = ValueOf(page, "process_open_fds");
  EXPECT_GE(open, 3);
  EXPECT_GT(ValueOf(page, "process_max_fds"), open);
  EXPECT_GE(ValueOf(page, "process_threads"), 1);
  const double age = WallSeconds() - ValueOf(page, "process_start_time_seconds");
  EXPECT_GE(age, -1);  // the kernel counts in hundredths of a second
  EXPECT_LT(age, 3600);
  const int more = dup(STDERR_FILENO);
  EXPECT_EQ(ValueOf(RenderMetrics({}), "process_open_fds"), open + 1);
  close(more);
}

TEST(Metrics, ComparesFirstTokensWithTheirPrediction) {
  ServiceMetrics metrics = Example();
  metrics.routing.first_tokens = 3;
  metrics.routing.predicted_first_token_s = 1.5;
  metrics.routing.first_token_s = 2.25;
  metrics.routing.first_token_error_s = 0.875;
  const std::string page = RenderMetrics(metrics);
  EXPECT_TRUE(HasLine(page, "kvcast_route_first_tokens_total 3")) << page;
  EXPECT_TRUE(HasLine(page, "kvcast_route_predicted_first_token_seconds_total 1.5"));
  EXPECT_TRUE(HasLine(page, "kvcast_route_real_first_token_seconds_total 2.25"));
  EXPECT_TRUE(HasLine(page, "kvcast_route_first_token_error_seconds_total 0.875"));
}

TEST(Metrics, CountsBlocksOfUnknownContent) {
  const std::string page = RenderMetrics(Example());
  EXPECT_TRUE(HasLine(page, R"(kvcast_unnamed_blocks{worker="engine \"0\""} 6)")) << page;
  EXPECT_TRUE(HasLine(page, R"(kvcast_named_late_blocks_total{worker="engine \"0\""} 2)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_ambiguous_names_total{worker="engine \"0\""} 3)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_bad_stores_total{worker="engine \"0\""} 4)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_forgotten_names_total{worker="engine \"0\""} 5)"));
  EXPECT_TRUE(HasLine(
      page, R"(kvcast_unnamed_stored_blocks_total{worker="engine \"0\"",reason="sparse"} 8)"));
  EXPECT_TRUE(HasLine(
      page, R"(kvcast_unnamed_stored_blocks_total{worker="engine \"0\"",reason="ambiguous"} 0)"));
}

TEST(Metrics, NamesTheSchemeThatWasFound) {
  const std::string page = RenderMetrics(Example());
  EXPECT_TRUE(
      HasLine(page, R"(kvcast_source_scheme_state{worker="engine \"0\"",state="matched"} 1)"))
      << page;
  EXPECT_TRUE(
      HasLine(page, R"(kvcast_source_scheme_state{worker="engine \"0\"",state="mismatch"} 0)"));
  EXPECT_TRUE(HasLine(page,
                      R"(kvcast_source_scheme_info{worker="engine \"0\"",)"
                      R"(algorithm="sha256_cbor",seed="configured",hash_block_size="16"} 1)"));
  EXPECT_TRUE(
      HasLine(page, R"(kvcast_source_scheme_matched_stores_total{worker="engine \"0\""} 5)"));
  EXPECT_TRUE(HasLine(page, R"(kvcast_source_scheme_skipped_stores_total{worker="engine \"0\"",)"
                            R"(reason="sparse"} 3)"));
}

TEST(Metrics, PassesPromtool) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool is not installed";
  }
  FILE* promtool = popen("promtool check metrics 2>&1", "w");
  ASSERT_NE(promtool, nullptr);
  const std::string page = RenderMetrics(Example());
  EXPECT_EQ(std::fwrite(page.data(), 1, page.size(), promtool), page.size());
  EXPECT_EQ(pclose(promtool), 0);
}

}  // namespace
}  // namespace kvcast::router
