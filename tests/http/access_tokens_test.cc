// AccessTokens refuses an invalid token file, and finds the role of a token.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/access_tokens.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "src/http/ip_network.h"

namespace kvcast {
namespace {

class AccessTokensTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/access_tokens_test_XXXXXX";
    const int file = mkstemp(path);
    ASSERT_GE(file, 0);
    close(file);
    path_ = path;
  }
  void TearDown() override { std::remove(path_.c_str()); }

  Result<AccessTokens> Read(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::trunc) << text;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    return AccessTokens::Read(path_);
  }
  // The error without the name of the file.
  std::string ErrorOf(const std::string& text, mode_t mode = 0600) {
    const Status status = Read(text, mode).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    const std::string begin = "token file " + path_ + ": ";
    EXPECT_TRUE(status.message().starts_with(begin)) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    return status.message().substr(std::min(begin.size(), status.message().size()));
  }

  std::string path_;
};

TEST_F(AccessTokensTest, FindsTheRoleOfEachToken) {
  const auto tokens = Read("# tokens\n\nquery q-token\nroute\tr\nobserve  o  \r\nadmin a");
  ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
  EXPECT_EQ(tokens->RoleOf("Bearer q-token"), AccessRole::kQuery);
  EXPECT_EQ(tokens->RoleOf("bearer r"), AccessRole::kRoute);
  EXPECT_EQ(tokens->RoleOf("BEARER  o "), AccessRole::kObserve);
  EXPECT_EQ(tokens->RoleOf("Bearer a"), AccessRole::kAdmin);
  for (const char* other : {"", "Bearer", "Bearer ", "q-token", "Basic q-token", "Bearer q-toke",
                            "Bearer q-token2", "Bearer q-token r", "Bearerq-token", "Bearer A"}) {
    EXPECT_EQ(tokens->RoleOf(other), std::nullopt) << other;
  }
}

TEST_F(AccessTokensTest, ErrorsNameTheLine) {
  EXPECT_EQ(ErrorOf("query a\nroot b\n"),
            "line 2: unknown role; must be query, route, observe or admin");
  EXPECT_EQ(ErrorOf("Query a\n"), "line 1: unknown role; must be query, route, observe or admin");
  EXPECT_EQ(ErrorOf("query\n"), "line 1: no token after the role");
  EXPECT_EQ(ErrorOf("\nadmin  \t\n"), "line 2: no token after the role");
  EXPECT_EQ(ErrorOf("query a\n#\nadmin a\n"), "line 3: an earlier line has the same token");
  EXPECT_EQ(ErrorOf("query a b\n"), "line 1: the token must consist of visible ASCII characters");
  EXPECT_EQ(ErrorOf("query \xc3\xa4\n"),
            "line 1: the token must consist of visible ASCII characters");
  EXPECT_EQ(ErrorOf("query " + std::string(1025, 'a')),
            "line 1: the token is longer than 1024 characters");
  EXPECT_EQ(ErrorOf(""), "contains no token");
  EXPECT_EQ(ErrorOf("# only a comment\n"), "contains no token");
  EXPECT_EQ(ErrorOf("query " + std::string(70000, 'a')), "longer than 64 KiB");
}

TEST_F(AccessTokensTest, AFileThatOthersCanAccessIsRefused) {
  const std::string error = "other users can access it; set mode 0600 or 0400";
  for (const mode_t mode : {0644, 0640, 0660, 0604, 0601, 0610, 0602}) {
    EXPECT_EQ(ErrorOf("query a\n", mode), error) << mode;
  }
  EXPECT_TRUE(Read("query a\n", 0600).ok());
  EXPECT_TRUE(Read("query a\n", 0400).ok());
}

TEST_F(AccessTokensTest, AFileThatCannotBeReadIsNamed) {
  EXPECT_EQ(AccessTokens::Read(path_ + ".none").status().message(),
            "token file " + path_ + ".none: No such file or directory");
  EXPECT_EQ(AccessTokens::Read("/tmp").status().message(), "token file /tmp: not a regular file");
}

TEST(AccessRole, RouteIncludesQueryAndAdminIncludesAll) {
  using enum AccessRole;
  for (const AccessRole needed : {kQuery, kRoute, kObserve, kAdmin}) {
    EXPECT_TRUE(Includes(kAdmin, needed));
    EXPECT_EQ(Includes(kQuery, needed), needed == kQuery);
    EXPECT_EQ(Includes(kRoute, needed), needed == kQuery || needed == kRoute);
    EXPECT_EQ(Includes(kObserve, needed), needed == kObserve);
  }
}

TEST(IpAddress, HasOneForm) {
  EXPECT_EQ(ParseIpAddress("10.1.2.3"), ParseIpAddress("::ffff:10.1.2.3"));
  EXPECT_EQ(ParseIpAddress("[::1]"), ParseIpAddress("::1"));
  for (const std::string& other :
       {std::string("127.1"), std::string("0x7f000001"), std::string("2130706433"),
        std::string("010.0.0.1"), std::string("10.0.0.1 "), std::string("[10.0.0.1]"),
        std::string("fe80::1%eth0"), std::string("host"), std::string(""),
        std::string("10.0.0.256"), std::string("10.0.0.1\0x", 10)}) {
    EXPECT_EQ(ParseIpAddress(other), std::nullopt) << other;
  }
}

TEST(IpNetwork, ContainsTheAddressesOfItsPrefix) {
  const auto contains = [](const char* network, const char* address) {
    return IpNetwork::Parse(network).value().Contains(ParseIpAddress(address).value());
  };
  EXPECT_TRUE(contains("10.0.0.0/8", "10.255.0.1"));
  EXPECT_TRUE(contains("10.0.0.0/8", "::ffff:10.0.0.1"));
  EXPECT_FALSE(contains("10.0.0.0/8", "11.0.0.1"));
  EXPECT_FALSE(contains("10.0.0.0/8", "::10.0.0.1"));
  EXPECT_TRUE(contains("192.168.4.0/22", "192.168.7.255"));
  EXPECT_FALSE(contains("192.168.4.0/22", "192.168.8.0"));
  EXPECT_TRUE(contains("10.1.2.3", "10.1.2.3"));
  EXPECT_FALSE(contains("10.1.2.3", "10.1.2.4"));
  EXPECT_TRUE(contains("0.0.0.0/0", "203.0.113.7"));
  EXPECT_FALSE(contains("0.0.0.0/0", "2001:db8::1"));
  EXPECT_TRUE(contains("2001:db8::/33", "2001:db8:7fff::1"));
  EXPECT_FALSE(contains("2001:db8::/33", "2001:db8:8000::1"));
  for (const char* other : {"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/8x",
                            "::/129", "host/8", "", "/8", "10.0/8"}) {
    EXPECT_FALSE(IpNetwork::Parse(other)) << other;
  }
}

}  // namespace
}  // namespace kvcast
