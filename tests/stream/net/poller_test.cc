// The poller sets the flag of each ready socket, and no other flag.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/poller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "src/stream/net/waker.h"

namespace kvcast::stream {
namespace {

// The two ends of a connection.
struct Pair {
  explicit Pair(const std::shared_ptr<Context>& context)
      : near(Socket::Create(context, ZMQ_PAIR).value()),
        far(Socket::Create(context, ZMQ_PAIR).value()) {
    EXPECT_TRUE(near.Bind("tcp://127.0.0.1:0").ok());
    EXPECT_TRUE(far.Connect(near.last_endpoint()).ok());
  }
  void Send(uint8_t byte) { EXPECT_EQ(far.Send({&byte, 1}, /*more=*/false), SendResult::kSent); }
  size_t ReceiveAll() {
    size_t received = 0;
    for (Multipart message; near.Receive(message) == RecvResult::kMessage;) ++received;
    return received;
  }

  Socket near;
  Socket far;
};

class PollerTest : public ::testing::Test {
 protected:
  const std::shared_ptr<Context> context_ = Context::Create();
  const std::unique_ptr<Poller> poller_ = Poller::Create().value();
};

TEST_F(PollerTest, OnlyTheFlagOfAReadySocketIsSet) {
  Pair active(context_);
  Pair silent(context_);
  std::atomic<bool> active_ready{false};
  std::atomic<bool> silent_ready{false};
  const auto first = poller_->Add(active.near, &active_ready).value();
  const auto second = poller_->Add(silent.near, &silent_ready).value();
  // Each socket must first process the events of its own connection.
  for (size_t messages = 0; messages < 100;) {
    active.Send(1);
    for (size_t received = 0; received == 0; messages += received) {
      while (!active_ready) poller_->Wait(-1);
      active_ready = false;
      received = active.ReceiveAll();
      silent.ReceiveAll();
    }
  }
  silent_ready = false;
  poller_->Wait(0);
  EXPECT_FALSE(active_ready);
  EXPECT_FALSE(silent_ready);
}

TEST_F(PollerTest, DescriptorIsReadyUntilItIsDrained) {
  const std::shared_ptr<Waker> waker = Waker::Create().value();
  std::atomic<bool> ready{false};
  const auto watch = poller_->Add(waker->descriptor(), &ready).value();
  poller_->Wait(0);
  EXPECT_FALSE(ready);
  std::thread([&] { waker->Wake(); }).join();
  for (int i = 0; i < 2; ++i) {
    ready = false;
    poller_->Wait(-1);
    EXPECT_TRUE(ready);
  }
  waker->Drain();
  ready = false;
  poller_->Wait(0);
  EXPECT_FALSE(ready);
}

TEST_F(PollerTest, AnEndedWatchSetsNoFlag) {
  const std::shared_ptr<Waker> waker = Waker::Create().value();
  waker->Wake();
  std::atomic<bool> ready{false};
  Poller::Watch watch = poller_->Add(waker->descriptor(), &ready).value();
  watch = Poller::Watch();
  poller_->Wait(0);
  EXPECT_FALSE(ready);
  const Poller::Watch second_watch = poller_->Add(waker->descriptor(), &ready).value();
  poller_->Wait(0);
  EXPECT_TRUE(ready);
}

TEST_F(PollerTest, LaterWaitsReportTheOtherReadyDescriptors) {
  constexpr size_t kMany = 200;
  std::vector<std::shared_ptr<Waker>> wakers;
  std::vector<Poller::Watch> watches;
  std::array<std::atomic<bool>, kMany> ready{};
  for (std::atomic<bool>& flag : ready) {
    wakers.push_back(Waker::Create().value());
    wakers.back()->Wake();
    watches.push_back(poller_->Add(wakers.back()->descriptor(), &flag).value());
  }
  for (size_t waits = 0; waits < kMany; ++waits) poller_->Wait(-1);
  EXPECT_TRUE(std::ranges::all_of(ready, [](const auto& flag) { return flag.load(); }));
}

TEST_F(PollerTest, BadDescriptorIsAnError) {
  std::atomic<bool> ready{false};
  EXPECT_FALSE(poller_->Add(-1, &ready).ok());
}

}  // namespace
}  // namespace kvcast::stream
