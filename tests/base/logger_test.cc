// The log writes each event once, bounds the number of lines that a peer can cause, and never waits
// for its output.
// SPDX-License-Identifier: Apache-2.0
#include "src/base/logger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/log_lines.h"

namespace kvcast {
namespace {

using testing::LogLines;
using Lines = std::vector<std::string>;

constexpr LogEvent kEvent = {"happened", LogLevel::kInfo, 3, 5};
constexpr int64_t kWindowMs = LogLimiter::kWindowMs;

TEST(Logger, WritesTheEventsOfItsLevelAndAbove) {
  constexpr std::array kLevels = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning,
                                  LogLevel::kError};
  for (const LogLevel least : kLevels) {
    LogLines lines(least);
    Lines expected;
    for (const LogLevel level : kLevels) {
      const LogEvent event = {kLogLevelNames[static_cast<size_t>(level)], level};
      lines.log().Write(event, "", {});
      EXPECT_EQ(lines.log().Enabled(event), level >= least);
      const std::string name(event.name);
      if (level >= least) expected.push_back(name + " " + name);
    }
    EXPECT_EQ(lines.lines(), expected);
  }
}

TEST(Logger, KeepsTheOrderOfLines) {
  LogLines lines;
  Lines expected;
  for (int i = 0; i < 1000; ++i) {
    lines.log().Write({"happened", LogLevel::kInfo, 1000}, "", {{"i", i}});
    expected.push_back("info happened i=" + std::to_string(i));
    if (i % 100 == 0) lines.log().Flush();
  }
  EXPECT_EQ(lines.lines(), expected);
}

TEST(Logger, BoundsTheLinesOfOneSource) {
  LogLines lines;
  for (int i = 0; i < 10; ++i) lines.log().Write(kEvent, "a", {{"i", i}});
  lines.log().Write(kEvent, "b", {});
  EXPECT_EQ(lines.lines(), (Lines{"info happened source=a i=0", "info happened source=a i=1",
                                  "info happened source=a i=2", "info happened source=b"}));
  EXPECT_EQ(lines.log().counters().lines, 4u);
  EXPECT_EQ(lines.log().counters().suppressed, 7u);
  lines.Advance(kWindowMs - 1);
  EXPECT_EQ(lines.lines().size(), 4u);
  lines.Advance(1);
  EXPECT_EQ(lines.lines().back(), "warning lines_suppressed source=a of=happened lines=7");
  lines.log().Write(kEvent, "a", {});
  EXPECT_EQ(lines.lines().back(), "info happened source=a");
}

TEST(Logger, BoundsTheLinesOfAllSources) {
  LogLines lines;
  for (int i = 0; i < 10; ++i) lines.log().Write(kEvent, std::to_string(i), {});
  EXPECT_EQ(lines.lines().size(), 5u);
  lines.log().Write({"other"}, "9", {});
  EXPECT_EQ(lines.lines().back(), "info other source=9");
}

TEST(Logger, CountsOfOpenWindowsAreWrittenAtTheEnd) {
  Lines written;
  {
    Logger log({.output = [&](std::string_view line) {
      written.emplace_back(line.substr(line.find(' ') + 1));
      return true;
    }});
    for (int i = 0; i < 5; ++i) log.Write(kEvent, "a", {});
  }
  ASSERT_EQ(written.size(), 4u);
  EXPECT_EQ(written.back(), "warning lines_suppressed source=a of=happened lines=2\n");
}

// All refusals come from one address, or each refusal comes from another address.
TEST(Logger, AMillionRefusalsGiveABoundedNumberOfLines) {
  for (const LogEvent& event : {log_events::kHttpRefused, log_events::kStreamRefused}) {
    for (const int addresses : {1, 1'000'000}) {
      LogLines lines;
      for (int i = 0; i < 1'000'000; ++i) {
        if (i % 100'000 == 0) lines.Advance(kWindowMs / 2);  // 5 minutes in all
        lines.log().Write(event, std::to_string(i % addresses), {{"status", 401}});
      }
      const size_t count = lines.lines().size();
      const size_t windows = 6;
      const size_t most = addresses == 1 ? event.lines_per_source : event.lines;
      EXPECT_LE(count, windows * (most + 1));
      EXPECT_GE(count, most);
      const LogCounters counters = lines.log().counters();
      EXPECT_EQ(counters.suppressed + counters.lines,
                1'000'000u + lines.With({"suppressed"}).size());
      EXPECT_EQ(counters.lost, 0u);
    }
  }
}

TEST(Logger, AStuckOutputLosesLinesAndStopsNoThread) {
  std::atomic<bool> stuck{true};
  std::atomic<bool> entered{false};
  Lines written;
  {
    Logger log({.queue_lines = 4, .output = [&](std::string_view line) {
                  entered = true;
                  while (stuck) std::this_thread::yield();
                  written.emplace_back(line.substr(line.find(' ') + 1));
                  return true;
                }});
    log.Write(kEvent.At(LogLevel::kWarning), "first", {});
    while (!entered) std::this_thread::yield();
    for (int i = 0; i < 10; ++i) log.Write({"more"}, "", {{"i", i}});
    EXPECT_EQ(log.counters().lost, 6u);
    stuck = false;
    log.Flush();
  }
  EXPECT_EQ(written,
            (Lines{"warning happened source=first\n", "error lines_lost lines=6\n",
                   "info more i=0\n", "info more i=1\n", "info more i=2\n", "info more i=3\n"}));
}

TEST(Logger, LinesThatTheOutputRefusesAreLost) {
  Logger log({.output = [](std::string_view) { return false; }});
  log.Write(kEvent, "", {});
  log.Flush();
  EXPECT_EQ(log.counters().lines, 0u);
  EXPECT_EQ(log.counters().lost, 1u);
}

TEST(Logger, ManyThreadsWriteWholeLines) {
  LogLines lines;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&lines, t] {
      for (int i = 0; i < 200; ++i) {
        lines.log().Write({"happened", LogLevel::kInfo, 1000}, std::to_string(t), {{"i", i}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Lines all = lines.lines();
  EXPECT_EQ(all.size(), 800u);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 800u);
}

TEST(LogEvents, HaveDifferentNames) {
  std::set<std::string_view> names;
  for (const LogEvent& event : kLogEvents) EXPECT_TRUE(names.insert(event.name).second);
}

}  // namespace
}  // namespace kvcast
