// FaultTest: publishers behind networks that fail, a subscriber, and the measured times.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/fault/tcp_proxy.h"
#include "tests/support/lossy_publisher.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Prints a measured value. The targets are for a quiet machine, so no test asserts them.
inline void Figure(const std::string& row, const std::string& name, double figure, double target,
                   const char* unit) {
  std::printf("[  figure  ] %s: %s %.3g %s (target %.3g)\n", row.c_str(), name.c_str(), figure,
              unit, target);
}

// The live path and the replay path to one publisher.
struct Network {
  explicit Network(const Publisher& publisher)
      : live(publisher.endpoint()), replay(publisher.replay_endpoint()) {}
  explicit Network(const SourceConfig& source)
      : live(source.endpoint), replay(source.replay_endpoint) {}

  // Connects to another publisher. Connections to the previous publisher are cut.
  void SwitchTo(const Publisher& publisher) {
    live.SwitchTo(publisher.endpoint());
    replay.SwitchTo(publisher.replay_endpoint());
    Cut();
  }
  void Cut() {
    live.Cut();
    replay.Cut();
  }
  void Stall(bool stall) {
    live.Stall(stall);
    replay.Stall(stall);
  }
  SourceConfig source(WorkerId worker, bool with_replay = true) const {
    return {worker, live.endpoint(), with_replay ? replay.endpoint() : "", ""};
  }

  testing::TcpProxy live;
  testing::TcpProxy replay;
};

class FaultTest : public ::testing::Test {
 protected:
  static constexpr WorkerId kWorker{0};

  void Follow(const SourceConfig& source, const SubscriberConfig& config = {}) {
    auto subscriber = Subscriber::Create(config);
    ASSERT_TRUE(subscriber.ok()) << subscriber.status().ToString();
    subscriber_ = std::move(subscriber).value();
    ASSERT_TRUE(AddSource(*subscriber_, sink_, source).ok());
  }
  bool Reaches(SourceState state) const {
    return Eventually([&] { return subscriber_->status(kWorker).state == state; });
  }
  bool Reaches(SourceState state, uint64_t next_seq) const {
    return Eventually([&] {
      const SourceStatus status = subscriber_->status(kWorker);
      return status.state == state && status.next_seq == next_seq;
    });
  }

  RecordingSink sink_;
  std::unique_ptr<Subscriber> subscriber_;
};

}  // namespace kvcast::stream
