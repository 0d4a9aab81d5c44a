// Tests when the gate wakes the owner of a guarded socket.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/gate.h"

#include <gtest/gtest.h>

#include <atomic>

#include "src/stream/net/waker.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

// A PUB socket. Its owner uses it only after a wake.
class GuardedPub {
 public:
  explicit GuardedPub(const TestServer& server) {
    guard_ = Guard::Create(context_, socket_,
                           {.server = server.server(),
                            .roles = {CurveRole::kSubscribe},
                            .wake = [this] { ++wakes_; }})
                 .value();
    EXPECT_TRUE(socket_.Bind("tcp://127.0.0.1:0").ok());
  }
  ~GuardedPub() { socket_.Close(); }

  // True: the gate woke the owner after the last call of HandleWake.
  bool WaitForWake() {
    const int before = handled_wakes_;
    return Eventually([&] { return wakes_ > before; });
  }
  void HandleWake() {
    guard_->HandleWake(socket_);
    handled_wakes_ = wakes_;
  }
  // Handles wakes until the gate makes no more wakes. The gate may be in a call of `wake` during
  // HandleWake, so the function waits for the next passes of the gate.
  bool BecomesQuiet() {
    return Eventually([&] {
      HandleWake();
      const int before = wakes_;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return wakes_ == before;
    });
  }
  const std::shared_ptr<Context>& context() const { return context_; }
  std::string endpoint() const { return socket_.last_endpoint(); }

 private:
  const std::shared_ptr<Context> context_ = Context::Create();
  std::unique_ptr<Guard> guard_;
  Socket socket_ = Socket::Create(context_, ZMQ_PUB).value();
  std::atomic<int> wakes_{0};
  int handled_wakes_ = 0;
};

// libzmq accepts and ends a connection of a socket in calls on this socket. An owner without a
// message to send makes no calls.
TEST(Gate, TheOwnerIsWokenForEachCommandOfLibzmq) {
  const CurveKeyPair client = NewKeys();
  const TestServer server(Line(kAllRoles, client));
  GuardedPub pub(server);
  ASSERT_TRUE(pub.BecomesQuiet());
  Socket sub = Socket::Create(pub.context(), ZMQ_SUB).value();
  sub.Secure(CurveClient{client, server.key()});
  sub.Subscribe("");
  ASSERT_TRUE(sub.Connect(pub.endpoint()).ok());
  ASSERT_TRUE(pub.WaitForWake());  // a connection was accepted
  ASSERT_TRUE(pub.BecomesQuiet());
  sub.Close();
  EXPECT_TRUE(pub.WaitForWake());  // the connection has ended
}

TEST(Gate, TheOwnerIsWokenUntilItHandlesTheWake) {
  const TestServer server;
  GuardedPub pub(server);
  ASSERT_TRUE(pub.WaitForWake());
  EXPECT_TRUE(pub.BecomesQuiet());
}

}  // namespace
}  // namespace kvcast::stream
