// The library loads valid files with CURVE keys and valid lists of clients, and refuses all others.
// It refuses libzmq versions with known vulnerabilities, and socket names that it uses itself.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/stream/net/socket.h"
#include "tests/support/curve_test_util.h"

namespace kvcast::stream {
namespace {

using testing::HasSubstr;
using testing::Not;

struct CurveFiles : ::testing::Test {
  Status LoadList(const std::string& text) const {
    return AccessList::Load(folder.Write("list", text)).status();
  }
  Status LoadKey(const std::string& text, mode_t mode = 0600) const {
    return CurveKeyPair::Load(folder.Write("key", text, mode)).status();
  }

  const TemporaryFolder folder;
  const CurveKeyPair keys = NewKeys();
};

TEST_F(CurveFiles, TheSecretKeyGivesTheKeyPair) {
  for (const char* end : {"", "\n"}) {
    const auto loaded = CurveKeyPair::Load(folder.Write("key", keys.secret_key + end));
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_EQ(loaded->public_key, keys.public_key);
    EXPECT_EQ(loaded->secret_key, keys.secret_key);
  }
}

TEST_F(CurveFiles, AKeyFileWithAnyAccessForOthersIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0644, 0660, 0610, 0601}) {
    const Status status = LoadKey(keys.secret_key, mode);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << mode;
    EXPECT_THAT(status.message(), HasSubstr("users other than the owner")) << mode;
  }
  EXPECT_TRUE(LoadKey(keys.secret_key, 0400).ok());
}

TEST_F(CurveFiles, AFileWithoutAKeyIsRefusedAndNotPrinted) {
  std::string bad = keys.secret_key;
  bad[7] = '"';  // not a character of Z85
  std::string cut = keys.secret_key;
  cut[20] = '\0';  // the 20 characters before the zero byte are valid
  for (const auto& [text, why] : {std::pair(std::string(), "40 characters, not 0"),
                                  std::pair(keys.secret_key.substr(1), "40 characters, not 39"),
                                  std::pair(keys.secret_key + "x", "40 characters, not 41"),
                                  std::pair(keys.secret_key + "\n\n", "40 characters, not 41"),
                                  std::pair(std::string(1000, 'a'), "40 characters, not 256"),
                                  std::pair(bad, "not Z85"), std::pair(cut, "not Z85")}) {
    const Status status = LoadKey(text);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(why));
    EXPECT_THAT(status.message(), HasSubstr(folder.File("key")));
    EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
    EXPECT_THAT(status.message(), Not(HasSubstr(keys.secret_key.substr(10, 20))));
  }
  EXPECT_THAT(CurveKeyPair::Load(folder.File("none")).status().message(),
              HasSubstr("No such file"));
  EXPECT_FALSE(CurveKeyPair::Load(folder.File("")).ok());  // a folder
}

TEST_F(CurveFiles, TheListGivesRolesByKey) {
  const CurveKeyPair other = NewKeys();
  const std::string text = "# routers\n\nsubscribe,replay " + keys.public_key +
                           " router-1 of rack 7\n  snapshot\t" + keys.public_key + "\nsubscribe " +
                           other.public_key;
  const auto list = AccessList::Load(folder.Write("list", text)).value();
  for (const CurveRole role : {CurveRole::kSubscribe, CurveRole::kReplay, CurveRole::kSnapshot}) {
    EXPECT_TRUE(list->Allows(role, keys.public_key));
    EXPECT_FALSE(list->Allows(role, keys.secret_key));
    EXPECT_FALSE(list->Allows(role, ""));
  }
  EXPECT_TRUE(list->Allows(CurveRole::kSubscribe, other.public_key));
  EXPECT_FALSE(list->Allows(CurveRole::kReplay, other.public_key));
  EXPECT_FALSE(list->Allows(CurveRole::kSnapshot, other.public_key));
}

TEST_F(CurveFiles, AWrongLineIsNamed) {
  const std::string good = Line("subscribe", keys);
  EXPECT_TRUE(LoadList("").ok());
  for (const std::string& bad :
       {std::string("subscribe"), "publish " + keys.public_key, "subscribe,," + keys.public_key,
        "subscribe,subscribe " + keys.public_key, "subscribe, " + keys.public_key, keys.public_key,
        std::string("subscribe short"), "Subscribe " + keys.public_key}) {
    const Status status = LoadList(good + bad);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("list: line 2: ")) << bad;
  }
  EXPECT_THAT(LoadList(std::string(AccessList::kMaxFileBytes + 1, '\n')).message(),
              HasSubstr("larger than 1 MiB"));
  EXPECT_FALSE(AccessList::Load(folder.File("none")).ok());
}

TEST_F(CurveFiles, AChangedListTakesEffectAtTheNextRefresh) {
  const auto list = AccessList::Load(folder.Write("list", Line("subscribe", keys))).value();
  const auto allowed = [&] { return list->Allows(CurveRole::kSubscribe, keys.public_key); };
  folder.Write("list", "# nobody\n");
  EXPECT_TRUE(allowed());
  EXPECT_TRUE(list->Refresh().ok());
  EXPECT_FALSE(allowed());
  folder.Write("list", Line("subscribe", keys));
  EXPECT_TRUE(list->Refresh().ok());
  EXPECT_TRUE(allowed());
  EXPECT_EQ(list->failed_refreshes(), 0u);
}

TEST_F(CurveFiles, AWrongOrMissingListLeavesTheOldList) {
  const auto list = AccessList::Load(folder.Write("list", Line("subscribe", keys))).value();
  folder.Write("list", "nonsense\n");
  EXPECT_FALSE(list->Refresh().ok());
  EXPECT_TRUE(list->Allows(CurveRole::kSubscribe, keys.public_key));
  EXPECT_EQ(list->failed_refreshes(), 1u);
  std::filesystem::remove(folder.File("list"));
  EXPECT_FALSE(list->Refresh().ok());
  EXPECT_TRUE(list->Allows(CurveRole::kSubscribe, keys.public_key));
  EXPECT_EQ(list->failed_refreshes(), 2u);
}

TEST(Libzmq, VersionsWithKnownVulnerabilitiesAreRefused) {
  EXPECT_TRUE(CheckLibzmqVersion(4, 3, 3).ok());
  EXPECT_TRUE(CheckLibzmqVersion(4, 3, 5).ok());
  EXPECT_TRUE(CheckLibzmqVersion(4, 4, 0).ok());
  EXPECT_TRUE(CheckLibzmqVersion(5, 0, 0).ok());
  for (const auto& [major, minor, patch] : {std::tuple(4, 3, 2), {4, 2, 9}, {3, 9, 9}}) {
    EXPECT_EQ(CheckLibzmqVersion(major, minor, patch).code(), StatusCode::kFailedPrecondition);
  }
}

TEST(SocketNames, NamesOfTheLibraryAreRefused) {
  Socket socket = Socket::Create(Context::Create(), ZMQ_PAIR).value();
  for (const char* reserved :
       {"inproc://kvcast-monitor-0", "inproc://kvcast-", "inproc://zeromq.zap.01"}) {
    EXPECT_EQ(socket.Connect(reserved).code(), StatusCode::kInvalidArgument) << reserved;
    EXPECT_EQ(socket.Bind(reserved).code(), StatusCode::kInvalidArgument) << reserved;
  }
  EXPECT_TRUE(socket.Bind("inproc://kvcast").ok());
}

// A socket that connects to the name of a monitor before the monitor exists becomes the peer of the
// monitor.
TEST(SocketNames, MonitorsHaveRandomNames) {
  const std::shared_ptr<Context> context = Context::Create();
  std::vector<Socket> squatters;
  for (int i = 0; i < 64; ++i) {
    squatters.push_back(Socket::Create(context, ZMQ_PAIR).value());
    const std::string name = "inproc://kvcast-monitor-" + std::to_string(i);
    ASSERT_EQ(zmq_connect(squatters.back().get(), name.c_str()), 0);
  }
  std::string previous;
  for (int i = 0; i < 8; ++i) {
    Socket server = Socket::Create(context, ZMQ_PUB).value();
    Result<Socket> monitor = server.Monitor(ZMQ_EVENT_LISTENING);
    ASSERT_TRUE(monitor.ok()) << monitor.status().ToString();
    ASSERT_TRUE(server.Bind("tcp://127.0.0.1:0").ok());
    EXPECT_TRUE(ReceiveMonitorEvent(*monitor).has_value());
    const std::string name = NewMonitorEndpoint();
    EXPECT_EQ(name.size(), std::string("inproc://kvcast-monitor-").size() + 32) << name;
    size_t equal = 0;  // digits that equal the digits of the previous name
    for (size_t k = 0; k < name.size(); ++k) equal += k < previous.size() && name[k] == previous[k];
    EXPECT_LT(equal, name.size() - 16) << previous << " " << name;
    previous = name;
    server.Close();
  }
}

}  // namespace
}  // namespace kvcast::stream
