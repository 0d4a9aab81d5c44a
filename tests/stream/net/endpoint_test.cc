// Tests the parts of an endpoint, and which endpoints are refused. Also tests the endpoint of each
// data-parallel rank, the address that replaces a wildcard, and whether a publisher binds an
// endpoint or connects to the endpoint.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/endpoint.h"

#include <gtest/gtest.h>

#include <string>

#include "kvcast/stream/publisher.h"

namespace kvcast {
namespace {

std::string ForRank(std::string_view endpoint, int64_t rank) {
  const Result<std::string> result = EndpointForRank(endpoint, rank);
  return result.ok() ? *result : "error " + std::string(StatusCodeName(result.status().code()));
}

TEST(EndpointForRank, RankZeroAndEmptyAreUnchanged) {
  EXPECT_EQ(ForRank("tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(ForRank("ipc:///run/kv.sock", 0), "ipc:///run/kv.sock");
  EXPECT_EQ(ForRank("", 3), "");
}

TEST(EndpointForRank, TcpAddsTheRankToThePort) {
  EXPECT_EQ(ForRank("tcp://*:5557", 1), "tcp://*:5558");
  EXPECT_EQ(ForRank("tcp://*:5657", 1), "tcp://*:5658");
  EXPECT_EQ(ForRank("tcp://[::1]:5557", 2), "tcp://[::1]:5559");
}

TEST(EndpointForRank, InprocAppendsTheRank) {
  EXPECT_EQ(ForRank("inproc://cache", 2), "inproc://cache_dp2");
}

TEST(EndpointForRank, PortZeroStaysZeroOnEveryRank) {
  EXPECT_EQ(ForRank("tcp://*:0", 3), "tcp://*:0");
  EXPECT_EQ(ForRank("tcp://127.0.0.1:*", 3), "tcp://127.0.0.1:*");
}

TEST(NodeEndpoint, OnlyTheWildcardWithPortZeroGetsAHost) {
  for (const char* endpoint : {"", "tcp://*:5557", "tcp://127.0.0.1:0", "ipc:///run/kv.sock"}) {
    EXPECT_EQ(NodeEndpoint(endpoint, "10.1.2.3").value(), endpoint);
  }
  EXPECT_EQ(NodeEndpoint("tcp://*:0", "10.1.2.3").value(), "tcp://10.1.2.3:0");
  EXPECT_EQ(NodeEndpoint("tcp://*:0", "fe80::1").value(), "tcp://[fe80::1]:0");
  const std::string resolved = NodeEndpoint("tcp://*:0").value();
  EXPECT_TRUE(resolved.starts_with("tcp://") && resolved.ends_with(":0")) << resolved;
  EXPECT_EQ(resolved.find('*'), std::string::npos);
  EXPECT_EQ(resolved.find("0.0.0.0"), std::string::npos);
  for (const char* wildcard : {"0.0.0.0", "::", "*"}) {
    EXPECT_FALSE(NodeEndpoint("tcp://*:0", wildcard).ok()) << wildcard;
  }
}

// Readers on other nodes connect to the endpoint that the publisher reports.
TEST(NodeEndpoint, APublisherReportsItsAddressAndPort) {
  PublisherConfig config;
  config.endpoint = config.replay_endpoint = "tcp://*:0";
  config.host_ip = "127.0.0.1";
  config.data_parallel_rank = 1;
  const auto publisher = Publisher::Create(config);
  ASSERT_TRUE(publisher.ok()) << publisher.status().ToString();
  for (const std::string& endpoint : {(*publisher)->endpoint(), (*publisher)->replay_endpoint()}) {
    EXPECT_TRUE(endpoint.starts_with("tcp://127.0.0.1:")) << endpoint;
    EXPECT_FALSE(endpoint.ends_with(":0")) << endpoint;
  }
}

TEST(EndpointForRank, OtherTransportsHaveNoRanks) {
  EXPECT_EQ(ForRank("ipc:///run/kv.sock", 1), "error invalid_argument");
}

TEST(EndpointForRank, ABadPortOrANegativeRankIsAnError) {
  EXPECT_EQ(ForRank("tcp://host", 1), "error invalid_argument");
  EXPECT_EQ(ForRank("tcp://host:port", 1), "error invalid_argument");
  EXPECT_EQ(ForRank("tcp://host:-5", 1), "error invalid_argument");
  EXPECT_EQ(ForRank("tcp://host:65535", 1), "error invalid_argument");
  EXPECT_EQ(ForRank("tcp://host:5557", INT64_MAX), "error invalid_argument");
  EXPECT_EQ(ForRank("tcp://host:5557", -1), "error invalid_argument");
}

TEST(BindsEndpoint, WildcardsIpcInprocLoopbackAndPortZeroBind) {
  for (const char* endpoint :
       {"tcp://*:5557", "tcp://[::]:5557", "tcp://[::1]:5557", "ipc:///run/kv.sock",
        "inproc://cache", "tcp://10.0.0.1:0", "tcp://127.0.0.1:5557", "tcp://0.0.0.0:5557"}) {
    EXPECT_TRUE(BindsEndpoint(endpoint)) << endpoint;
  }
}

TEST(BindsEndpoint, HostsAreConnectedTo) {
  EXPECT_FALSE(BindsEndpoint("tcp://router.example:5557"));
  EXPECT_FALSE(BindsEndpoint("tcp://10.0.0.1:5557"));
}

TEST(ParseEndpoint, TakesTheTransportsThatASourceCanHave) {
  struct Case {
    const char* text;
    Transport transport;
    const char* host;
    int port;
    bool name;
    bool local;
  };
  const Case cases[] = {
      {"tcp://127.0.0.1:5557", Transport::kTcp, "127.0.0.1", 5557, false, true},
      {"tcp://10.0.0.1:1", Transport::kTcp, "10.0.0.1", 1, false, false},
      {"tcp://[::1]:65535", Transport::kTcp, "::1", 65535, false, true},
      {"tcp://[fd00::2]:80", Transport::kTcp, "fd00::2", 80, false, false},
      {"tcp://localhost:80", Transport::kTcp, "localhost", 80, true, true},
      {"tcp://vllm-0.engines_a.svc.:80", Transport::kTcp, "vllm-0.engines_a.svc.", 80, true, false},
      {"tcp://127.evil.example:80", Transport::kTcp, "127.evil.example", 80, true, false},
      {"ipc:///run/kv.sock", Transport::kIpc, "/run/kv.sock", 0, false, true},
      {"inproc://events", Transport::kInproc, "events", 0, false, true},
  };
  for (const Case& each : cases) {
    const auto parsed = ParseEndpoint(each.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->transport, each.transport) << each.text;
    EXPECT_EQ(parsed->host, each.host) << each.text;
    EXPECT_EQ(parsed->port, each.port) << each.text;
    EXPECT_EQ(parsed->has_name(), each.name) << each.text;
    EXPECT_EQ(parsed->is_local(), each.local) << each.text;
    EXPECT_EQ(parsed->ToString(), each.text);
  }
}

TEST(ParseEndpoint, RefusesImpossibleEndpoints) {
  const std::string label(64, 'a');
  std::string long_name = "a";
  for (int i = 0; i < 150; ++i) long_name += ".a";
  for (const std::string& text : {std::string(""),
                                  std::string("nonsense"),
                                  std::string("tcp://"),
                                  std::string("tcp://:1"),
                                  std::string("tcp://127.0.0.1"),
                                  std::string("tcp://127.0.0.1:"),
                                  std::string("tcp://127.0.0.1:0"),
                                  std::string("tcp://127.0.0.1:*"),
                                  std::string("tcp://127.0.0.1:99999"),
                                  std::string("tcp://127.0.0.1:65536"),
                                  std::string("tcp://127.0.0.1:-1"),
                                  std::string("tcp://127.0.0.1:1x"),
                                  std::string("tcp://127.0.0.256:1"),
                                  std::string("tcp://1.2.3:1"),
                                  std::string("tcp://*:5557"),
                                  std::string("tcp://a..b:1"),
                                  std::string("tcp://a b:1"),
                                  std::string("tcp://10.0.0.1:5;10.0.0.2:5"),
                                  std::string("tcp://::1:80"),
                                  std::string("tcp://[10.0.0.1]:80"),
                                  "tcp://" + label + ":1",
                                  "tcp://" + long_name + ":1",
                                  std::string("norm://127.0.0.1:1"),
                                  std::string("ws://127.0.0.1:1"),
                                  std::string("tipc://{1,2,3}"),
                                  std::string("pgm://eth0;239.0.0.1:1"),
                                  std::string("epgm://eth0;239.0.0.1:1"),
                                  std::string("udp://127.0.0.1:1"),
                                  std::string("vmci://*:1"),
                                  std::string("TCP://127.0.0.1:1"),
                                  std::string("ipc://"),
                                  "ipc://" + std::string(108, 'a'),
                                  std::string("inproc://")}) {
    const Status status = ParseEndpoint(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(text), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace kvcast
