// If the reader of stderr reads nothing, the log loses lines. A writer waits only for a bounded
// time.
// SPDX-License-Identifier: Apache-2.0
#include "apps/support/stderr_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

namespace kvcast::tools {
namespace {

constexpr int kPatienceMs = 1;

struct StderrLog : ::testing::Test {
  StderrLog() {
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  }
  ~StderrLog() override {
    close(ends[0]);
    close(ends[1]);
  }
  // Reads all bytes that are in the pipe.
  std::string Read() const {
    std::string text(size_t{1} << 20, '\0');
    size_t got = 0;
    for (ssize_t part = 1; part > 0; got += static_cast<size_t>(part > 0 ? part : 0)) {
      part = read(ends[0], text.data() + got, text.size() - got);
    }
    return text.substr(0, got);
  }

  int ends[2] = {-1, -1};
};

TEST_F(StderrLog, WritesWholeLines) {
  LineOutput output(ends[1], kPatienceMs);
  const std::string longest = std::string(20'000, 'x') + "\n";
  EXPECT_TRUE(output.Write("one\n"));
  EXPECT_TRUE(output.Write(longest));
  EXPECT_EQ(Read(), "one\n" + longest);
}

TEST_F(StderrLog, AFullPipeLosesLinesAndDoesNotBlock) {
  LineOutput output(ends[1], kPatienceMs);
  const std::string line = std::string(999, 'x') + "\n";
  int taken = 0;
  while (output.Write(line)) ++taken;
  EXPECT_GE(taken, 30);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(output.Write("lost\n"));
  std::string all = Read();
  EXPECT_EQ(all.find("lost"), std::string::npos);
  EXPECT_TRUE(output.Write("again\n"));
  all += Read();
  // The end of a line was lost. A newline separates this line from the next line.
  EXPECT_TRUE(all.ends_with("\nagain\n")) << all.substr(all.size() - 20);
}

TEST_F(StderrLog, ALineWhoseEndIsLostIsEndedBeforeTheNextLine) {
  LineOutput output(ends[1], kPatienceMs);
  EXPECT_TRUE(output.Write(std::string(size_t{1} << 19, 'x') + "\n"));
  EXPECT_FALSE(output.Write("lost\n"));
  const std::string cut = Read();
  ASSERT_FALSE(cut.ends_with("\n"));
  EXPECT_TRUE(output.Write("next\n"));
  EXPECT_EQ(Read(), "\nnext\n");
}

TEST_F(StderrLog, AClosedReaderLosesLines) {
  signal(SIGPIPE, SIG_IGN);
  LineOutput output(ends[1], kPatienceMs);
  close(ends[0]);
  EXPECT_FALSE(output.Write("lost\n"));
  ends[0] = dup(ends[1]);
}

TEST(LogFlags, NameTheSameOptions) {
  EXPECT_EQ(FlagsOf({.format = "json", .level = "error"}),
            (std::vector<std::string>{"--log-format", "json", "--log-level", "error"}));
}

}  // namespace
}  // namespace kvcast::tools
