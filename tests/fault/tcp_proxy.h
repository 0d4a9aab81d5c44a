// TcpProxy: a network between two peers on this machine. The test decides when the network fails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kvcast::testing {

// Listens on a free port of 127.0.0.1 and forwards connections to a port of 127.0.0.1. Thread-safe.
class TcpProxy {
 public:
  // `target`: "tcp://127.0.0.1:PORT".
  explicit TcpProxy(const std::string& target);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  const std::string& endpoint() const { return endpoint_; }

  // New connections go to this target. Open connections continue unchanged.
  void SwitchTo(const std::string& target);
  // Closes all connections, as the kernel does if a process is killed.
  void Cut() { Set(cut_, true); }
  // While true, each new connection is closed immediately.
  void Refuse(bool refuse) { Set(refuse_, refuse); }
  // While true, connections stay open and no byte passes. Neither side is notified.
  void Stall(bool stall) {
    Set(stall_to_target_, stall);
    Set(stall_from_target_, stall);
  }
  void StallFromTarget(bool stall) { Set(stall_from_target_, stall); }
  // Bytes from the target are forwarded after this delay.
  void Delay(std::chrono::milliseconds delay) { delay_ms_ = delay.count(); }

  // Returns the number of forwarded bytes in both directions.
  uint64_t passed_bytes() const { return passed_bytes_; }
  int connections() const { return connections_; }
  // Returns the number of window probes that TCP has sent to the newest client since the client's
  // buffers became full. TCP doubles the time from probe to probe. 0: the client accepts bytes.
  int window_probes() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Chunk {
    Clock::time_point due;
    std::vector<char> bytes;
    size_t sent = 0;
  };
  struct Direction {
    int from;
    int to;
    std::deque<Chunk> chunks;
    size_t held_bytes = 0;
    bool ended = false;  // `from` has closed the connection
  };
  struct Connection {
    int client;
    int target;
    Direction to_target;
    Direction from_target;
  };

  void Set(std::atomic<bool>& flag, bool value);
  void Run();
  int Poll() const;
  void Accept();
  // Returns false if the connection has ended.
  bool Pump(Direction& direction, bool stalled, std::chrono::milliseconds delay);
  static void Close(const Connection& connection);

  int listener_ = -1;
  int waker_ = -1;  // an eventfd that signals a changed flag
  std::string endpoint_;
  std::mutex mutex_;
  uint16_t target_port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> cut_ = false;
  std::atomic<bool> refuse_ = false;
  std::atomic<bool> stall_to_target_ = false;
  std::atomic<bool> stall_from_target_ = false;
  std::atomic<int64_t> delay_ms_ = 0;
  std::atomic<uint64_t> passed_bytes_ = 0;
  std::atomic<int> connections_ = 0;
  std::atomic<int> newest_client_ = -1;
  std::list<Connection> open_;  // used only by thread_
  std::thread thread_;
};

}  // namespace kvcast::testing
