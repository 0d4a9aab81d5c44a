// A router sends its state to one router at a time, and a client that goes away ends the sending.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/join/state_sender.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "router/service/join/state_stream.h"
#include "router/service/state/state_file.h"
#include "tests/support/log_lines.h"

namespace kvcast::router {
namespace {

constexpr uint64_t kSecret = 5;

struct StateSenderTest : ::testing::Test {
  HttpReply Ask() {
    HttpRequest request;
    request.peer = "10.0.0.7";
    return sender.Answer(request);
  }

  kvcast::testing::LogLines lines;
  const ContentKeys keys{kSecret};
  PrefixIndex index{keys, 2};
  std::unique_ptr<Fleet> fleet = Fleet::Create({}, index, {}).value();
  StateSender sender{{index, *fleet, [](const WorkerRegistration&) { return std::string(); },
                      kSecret, [] { return 1.5; }},
                     &lines.log()};
};

TEST_F(StateSenderTest, SendsAllShards) {
  StateStreamHead head;
  StateStreamReader reader([&head](const StateStreamHead& got) {
    head = got;
    return Status();
  });
  {
    const HttpReply reply = Ask();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.content_type, "application/octet-stream");
    for (std::string piece; !(piece = reply.next_piece()).empty();) {
      ASSERT_TRUE(reader.Add(piece).ok());
    }
    ASSERT_TRUE(reader.complete());
    EXPECT_EQ(reply.next_piece(), "");
  }
  EXPECT_EQ(head.secret, kSecret);
  const std::vector<Descriptor> shards = reader.Take();
  ASSERT_EQ(shards.size(), 2u);
  for (const Descriptor& shard : shards) {
    const auto file = StateFile::Read(shard, "shard", SecretCheck(kSecret));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(file->saved_at_ms(), 1500);
    EXPECT_TRUE(file->workers().empty());
  }
  EXPECT_EQ(sender.report().sends, 1u);
  EXPECT_EQ(sender.report().errors, 0u);
  EXPECT_EQ(sender.report().bytes, reader.bytes());
  EXPECT_EQ(lines.With({"state_sent source=10.0.0.7 workers=0"}).size(), 1u);
}

TEST_F(StateSenderTest, SendsOneStateAtATime) {
  HttpReply first = Ask();
  EXPECT_FALSE(first.next_piece().empty());
  EXPECT_EQ(Ask().status, 503);
  EXPECT_EQ(Ask().status, 503);
  first = {};
  EXPECT_EQ(Ask().status, 200);
  EXPECT_EQ(sender.report().sends, 1u) << "a reply without a piece is not sent";
}

TEST_F(StateSenderTest, AClientThatGoesAwayEndsTheSending) {
  for (uint64_t pieces = 1; pieces < 4; ++pieces) {
    HttpReply reply = Ask();
    for (uint64_t i = 0; i < pieces; ++i) EXPECT_FALSE(reply.next_piece().empty());
    reply = {};
    EXPECT_EQ(sender.report().errors, pieces);
  }
  EXPECT_EQ(lines.With({"warning state_send_failed", "closed the connection"}).size(), 3u);
  EXPECT_EQ(Ask().status, 200);
}

}  // namespace
}  // namespace kvcast::router
