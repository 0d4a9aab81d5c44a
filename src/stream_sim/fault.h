// Faults of a simulated run: drawn from the seed before it begins, so that a run can be repeated
// with fewer of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvcast::sim {

enum class FaultKind : uint8_t {
  // For a while; `amount` is percent of messages.
  kDropLive,
  kDuplicateLive,
  kReorderLive,
  kTruncateLive,  // cut, so that it cannot be decoded
  kDropReplies,
  kScrambleReplies,  // swapped, doubled
  // For a while; `amount` is milliseconds.
  kDelayLive,
  kSlowReplies,
  kPausePublisher,  // stopped, not dead
  kPauseFollower,
  kPartition,     // nothing arrives, nobody notices
  kCutReplies,    // a legacy server drops what goes over `amount` replies at once
  kBreakReplies,  // the connection that brings them ends; `amount` is percent of replies
  // At once.
  kDisconnect,
  kRestart,        // `amount` batches are published before anybody can connect
  kSilentRestart,  // and the old connection seems to live on for `amount` * 20 ms
  kBurst,          // `amount` batches
  kBurn,           // `amount` steps are refused: their numbers are spent
  kClear,          // the engine resets its prefix cache
  kClockJump,      // `amount` ms, of the follower's clock
  kDamage,         // `amount` entries of the index go wrong (publishers with digests)
  kContradict,     // somebody who knows says that the state is impossible
  kOversize,       // a batch that no connection survives
  kAskSnapshot,    // another reader sends the legacy `snapshot` request
};
inline constexpr int kFaultKinds = 24;
const char* FaultName(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kDropLive;
  int publisher = 0;
  int64_t at_ms = 0;
  int64_t duration_ms = 0;
  int64_t amount = 0;
};

std::string ToString(const Fault& fault);

// In order of time, the last one over before `end_ms`.
std::vector<Fault> DrawFaults(uint64_t seed, int publishers, int64_t end_ms);

}  // namespace kvcast::sim
