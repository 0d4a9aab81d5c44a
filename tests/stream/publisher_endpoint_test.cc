// Tests the endpoints on which a publisher listens, and the errors if the publisher cannot listen.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Status CreationStatus(const PublisherConfig& config) { return Publisher::Create(config).status(); }

TEST(PublisherEndpoint, PortZeroIsResolved) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  EXPECT_THAT(publisher->endpoint(), StartsWith("tcp://127.0.0.1:"));
  EXPECT_THAT(publisher->endpoint(), Not(testing::EndsWith(":0")));
  EXPECT_THAT(publisher->replay_endpoint(), StartsWith("tcp://127.0.0.1:"));
  EXPECT_NE(publisher->endpoint(), publisher->replay_endpoint());
}

TEST(PublisherEndpoint, ReplayIsOptional) {
  PublisherConfig config = TestPublisherConfig();
  config.replay_endpoint.clear();
  EXPECT_EQ(MakePublisher(config)->replay_endpoint(), "");
}

TEST(PublisherEndpoint, RanksGetEndpointsOfTheirOwn) {
  PublisherConfig config;
  config.endpoint = "inproc://ranks";
  config.replay_endpoint = "inproc://ranks_replay";
  const auto rank0 = MakePublisher(config);
  config.data_parallel_rank = 1;
  const auto rank1 = MakePublisher(config);
  EXPECT_EQ(rank0->endpoint(), "inproc://ranks");
  EXPECT_EQ(rank1->endpoint(), "inproc://ranks_dp1");
  EXPECT_EQ(rank1->replay_endpoint(), "inproc://ranks_replay_dp1");
}

TEST(PublisherEndpoint, AddressInUseIsUnavailableAndNamed) {
  const auto first = MakePublisher(TestPublisherConfig());
  PublisherConfig config = TestPublisherConfig();
  config.endpoint = first->endpoint();
  EXPECT_EQ(CreationStatus(config).code(), StatusCode::kUnavailable);
  EXPECT_THAT(CreationStatus(config).message(), HasSubstr(first->endpoint()));
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = first->replay_endpoint();
  EXPECT_EQ(CreationStatus(config).code(), StatusCode::kUnavailable);
  EXPECT_THAT(CreationStatus(config).message(), HasSubstr(first->replay_endpoint()));
}

TEST(PublisherEndpoint, BadConfigIsInvalid) {
  const auto code_with = [](auto change) {
    PublisherConfig config = TestPublisherConfig();
    change(config);
    return CreationStatus(config).code();
  };
  const StatusCode invalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(code_with([](auto& c) { c.endpoint = ""; }), invalid);
  EXPECT_EQ(code_with([](auto& c) { c.endpoint = "nonsense"; }), invalid);
  EXPECT_EQ(code_with([](auto& c) { c.endpoint = "udp9://127.0.0.1:1"; }), invalid);
  EXPECT_EQ(code_with([](auto& c) { c.replay_endpoint = "nonsense"; }), invalid);
  EXPECT_EQ(code_with([](auto& c) { c.data_parallel_rank = -1; }), invalid);
  EXPECT_EQ(code_with([](auto& c) { c.ring_batches = 0; }), invalid);
  EXPECT_EQ(code_with([](auto& c) { c.send_hwm = -1; }), invalid);
  EXPECT_EQ(code_with([](auto& c) {
              c.endpoint = "ipc:///tmp/kvcast-test.sock";
              c.data_parallel_rank = 1;
            }),
            invalid);
}

TEST(PublisherEndpoint, ConnectsToAHostThatBinds) {
  PublisherConfig config = TestPublisherConfig();
  config.endpoint = "tcp://localhost:9";
  EXPECT_EQ(MakePublisher(config)->endpoint(), "tcp://localhost:9");
}

// vLLM connects to a loopback address, and a router binds it.
TEST(PublisherEndpoint, BindsOrConnectsAsTheConfigSays) {
  const auto bound = MakePublisher(TestPublisherConfig());
  PublisherConfig config = TestPublisherConfig();
  config.endpoint = bound->endpoint();
  config.binds = false;
  EXPECT_EQ(MakePublisher(config)->endpoint(), bound->endpoint());
  config.endpoint = "tcp://192.0.2.1:9";  // no address of this machine
  EXPECT_EQ(MakePublisher(config)->endpoint(), "tcp://192.0.2.1:9");
  config.binds = true;
  EXPECT_FALSE(CreationStatus(config).ok());
}

}  // namespace
}  // namespace kvcast::stream
