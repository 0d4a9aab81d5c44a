// BridgeStatus: the state and the counters of a process that reads a durable log; see LogBridge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvcast::event_log {

enum class BridgeState : uint8_t {
  kUnreachable,  // the log cannot be read; BridgeStatus::error has the cause
  kReading,      // no complete snapshot was read yet, or its state cannot be published (error)
  kSilent,       // no announcement of the last LogBridge::kAliveMs was reached
  kFollowing,
};
inline constexpr size_t kBridgeStates = 4;
// The name for metrics and the log, such as "following".
inline std::string_view BridgeStateName(BridgeState state) {
  switch (state) {
    case BridgeState::kUnreachable:
      return "unreachable";
    case BridgeState::kReading:
      return "reading";
    case BridgeState::kSilent:
      return "silent";
    case BridgeState::kFollowing:
      return "following";
  }
  return "unknown";
}

struct ReplicaCounters {
  uint64_t snapshots = 0;    // snapshots with which the replica began
  uint64_t adoptions = 0;    // epochs that began with the state that the replica had
  uint64_t gaps = 0;         // how often a batch was missing
  uint64_t bad_records = 0;  // messages that are not records, and snapshots that cannot be used
};

struct BridgeStatus {
  BridgeState state = BridgeState::kUnreachable;
  std::string error;
  ReplicaCounters replica;
  uint64_t rewinds = 0;     // the log was read again from its first message
  uint64_t mismatches = 0;  // announced digests that differed from the digests of the state
};

}  // namespace kvcast::event_log
