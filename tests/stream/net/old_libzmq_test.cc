// With a libzmq that has known vulnerabilities, no socket is created. This program replaces
// zmq_version by a function that reports an old version.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <zmq.h>

#include "kvcast/stream/publisher.h"
#include "kvcast/stream/subscriber.h"
#include "src/stream/net/socket.h"

extern "C" void zmq_version(int* major, int* minor, int* patch) {
  *major = 4;
  *minor = 3;
  *patch = 2;
}

namespace kvcast::stream {
namespace {

void ExpectRefused(const Status& status) {
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("libzmq 4.3.2 has known vulnerabilities"), std::string::npos)
      << status.message();
}

TEST(OldLibzmq, NoSocketIsCreated) {
  ExpectRefused(Socket::Create(Context::Create(), ZMQ_SUB).status());
}

TEST(OldLibzmq, NoPublisherIsCreatedAndNoSourceFollowed) {
  PublisherConfig config;
  config.endpoint = config.replay_endpoint = "tcp://127.0.0.1:0";
  ExpectRefused(Publisher::Create(config).status());
  const auto subscriber = Subscriber::Create({}).value();
  ExpectRefused(subscriber->Add({WorkerId(1), "tcp://127.0.0.1:9", "", ""},
                                std::make_shared<BatchSink>(BatchSink::OnBatch())));
}

}  // namespace
}  // namespace kvcast::stream
