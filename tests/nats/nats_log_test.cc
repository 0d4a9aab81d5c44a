// If the connection ends while a log starts, the log uses the next connection. The server is a
// fake. tests/apps/commands/nats_test.py tests the log with a NATS server.
// SPDX-License-Identifier: Apache-2.0
#include "src/nats/nats_log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/support/hostile_engine.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::nats {
namespace {

// Accepts connections one after the other. It answers pings, and ends the first connection at its
// first subscription.
class FakeServer {
 public:
  FakeServer() : thread_([this] { Run(); }) {}
  ~FakeServer() {
    stopping_ = true;
    (void)listener_.Connect();  // wakes Accept
    thread_.join();
  }
  std::string url() const { return "nats://" + listener_.endpoint().substr(6); }
  int connections() const { return connections_; }

 private:
  void Run() {
    for (;;) {
      const Descriptor client = listener_.Accept();
      if (stopping_) return;
      ++connections_;
      Serve(client.get());
    }
  }
  void Serve(int client) {
    SendText(client,
             "INFO {\"server_id\":\"fake\",\"version\":\"2.9.0\",\"proto\":1,"
             "\"headers\":true,\"max_payload\":1048576}\r\n");
    std::string line;
    char byte = 0;
    while (!stopping_ && recv(client, &byte, 1, 0) == 1) {
      line += byte;
      if (byte != '\n') continue;
      if (line.starts_with("PING")) SendText(client, "PONG\r\n");
      if (line.starts_with("SUB") && connections_ == 1) return;
      line.clear();
    }
  }
  static void SendText(int client, const std::string& text) {
    (void)send(client, text.data(), text.size(), MSG_NOSIGNAL);
  }

  stream::Listener listener_;
  std::atomic<int> connections_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// The first subscription of the first connection succeeds. The second subscription fails, because
// the source has no name, so its subject is invalid. The log then drops the connection, and the
// connection ends. AddressSanitizer would report an access to the connection that was freed.
TEST(NatsLog, ASubscriptionKeepsItsConnection) {
  FakeServer server;
  NatsOptions options;
  options.url = server.url();
  const auto log = MakeNatsLog(NatsConnection::Create(options).value(), NatsSource{});
  EXPECT_TRUE(stream::Eventually([&] {
    EXPECT_FALSE(log->End().ok());
    return server.connections() >= 2;
  }));
}

}  // namespace
}  // namespace kvcast::nats
