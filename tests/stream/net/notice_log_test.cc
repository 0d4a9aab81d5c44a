// The log of a CURVE server names each refused client, each revocation and each list that cannot be
// read. It never contains a key.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/notice_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/curve_test_util.h"
#include "tests/support/log_lines.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

using testing::LogLines;
using Lines = std::vector<std::string>;

struct NoticeLogTest : ::testing::Test {
  NoticeLogTest() {
    PublisherConfig config = TestPublisherConfig();
    config.curve = server.server();
    config.curve->on_notice = LogNotices(lines.log(), "engine");
    publisher = MakePublisher(config);
  }
  ~NoticeLogTest() override {
    const std::regex key("[0-9a-zA-Z.\\-:+=^!/*?&<>()\\[\\]{}@%$#]{40}");
    for (const std::string& line : lines.lines()) {
      EXPECT_FALSE(std::regex_search(line, key)) << line;
    }
  }
  std::unique_ptr<Subscriber> Follow(const std::optional<CurveKeyPair>& keys,
                                     const std::string& server_key) {
    SubscriberConfig config;
    config.curve_keys = keys;
    auto subscriber = Subscriber::Create(config).value();
    EXPECT_TRUE(AddSource(*subscriber, sink,
                          {WorkerId(0), publisher->endpoint(), publisher->replay_endpoint(), "",
                           /*bind=*/false, server_key})
                    .ok());
    return subscriber;
  }
  bool Await(const Lines& texts) {
    return Eventually([&] { return !lines.With(texts).empty(); });
  }

  const CurveKeyPair client = NewKeys();
  const CurveKeyPair reads_only = NewKeys();
  const TestServer server{Line(kAllRoles, client) + Line("subscribe", reads_only)};
  LogLines lines;
  RecordingSink sink;
  std::unique_ptr<Publisher> publisher;
};

TEST_F(NoticeLogTest, AClientThatIsNotOnTheListIsNamedByItsAddress) {
  const auto stranger = Follow(NewKeys(), server.key());
  EXPECT_TRUE(
      Await({"warning stream_refused source=127.0.0.1 stream=engine socket=live "
             "reason=not_allowed"}));
}

TEST_F(NoticeLogTest, TheReplaySocketHasItsOwnLines) {
  const auto reader = Follow(reads_only, server.key());
  EXPECT_TRUE(
      Await({"warning stream_refused source=127.0.0.1 stream=engine socket=replay "
             "reason=not_allowed"}));
  EXPECT_EQ(lines.With({"socket=live"}), Lines());
}

TEST_F(NoticeLogTest, AClientWithoutAKeyOrWithAnotherServerKey) {
  const auto plain = Follow(std::nullopt, "");
  EXPECT_TRUE(Await({"warning stream_refused stream=engine socket=live reason=no_key"}));
  const auto misled = Follow(client, NewKeys().public_key);
  EXPECT_TRUE(Await({"warning stream_refused stream=engine socket=live reason=wrong_server_key"}));
}

TEST_F(NoticeLogTest, AValidClientIsNotInTheLog) {
  const auto valid = Follow(client, server.key());
  PublishUpTo(*publisher, 10);
  ASSERT_TRUE(sink.WaitFor(10));
  EXPECT_EQ(lines.lines(), Lines());
}

TEST_F(NoticeLogTest, ARevocationIsOneLineForEachSocket) {
  const auto valid = Follow(client, server.key());
  PublishUpTo(*publisher, 10);
  ASSERT_TRUE(sink.WaitFor(10));
  server.SetList("");
  ASSERT_TRUE(Await({"warning stream_revoked stream=engine socket=live clients=1"}));
  ASSERT_TRUE(Await({"stream_refused source=127.0.0.1", "reason=not_allowed"}));
  EXPECT_EQ(lines.With({"stream_revoked", "socket=live"}).size(), 1u);
}

TEST_F(NoticeLogTest, AListThatCannotBeReadIsNamedWithItsLine) {
  server.SetList(Line(kAllRoles, client) + "subscribe nonsense\n");
  ASSERT_TRUE(Await({"error client_list_failed", "clients: line 2: "}));
}

TEST(NoticeLog, AMillionRefusedClientsGiveABoundedNumberOfLines) {
  LogLines lines;
  const auto notify = LogNotices(lines.log(), "engine");
  for (int i = 0; i < 1'000'000; ++i) {
    notify({.kind = CurveNotice::Kind::kRefused,
            .socket = "live",
            .peer = "10.0.0.1",
            .reason = "not_allowed"});
  }
  EXPECT_EQ(lines.lines().size(), log_events::kStreamRefused.lines_per_source);
  lines.Advance(LogLimiter::kWindowMs);
  EXPECT_EQ(lines.lines().back(),
            "warning lines_suppressed source=10.0.0.1 of=stream_refused lines=999990");
}

}  // namespace
}  // namespace kvcast::stream
