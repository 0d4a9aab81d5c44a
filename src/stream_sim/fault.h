// The faults of a simulated run. They are drawn from the seed before the run starts, so that the
// run can be repeated with fewer faults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvcast::sim {

enum class FaultKind : uint8_t {
  // Faults with a duration. `amount`: percentage of the messages.
  kDropLive,
  kDuplicateLive,
  kReorderLive,
  kTruncateLive,  // the batch is cut and cannot be decoded
  kDropReplies,
  kScrambleReplies,  // reordered and duplicated
  // Faults with a duration. `amount`: maximum delay in milliseconds.
  kDelayLive,
  kSlowReplies,
  // Faults with a duration. Most of them have no amount.
  kPausePublisher,  // the process is stopped, but does not end
  kPauseFollower,
  kPartition,     // no message arrives; the connection ends after 3 s of silence
  kCutReplies,    // a legacy server drops most replies after the first `amount` of an answer
  kBreakReplies,  // each reply ends its connection with a probability of `amount` percent
  // Faults without a duration.
  kDisconnect,
  kRestart,        // the engine makes `amount` steps before a client can connect
  kSilentRestart,  // a restart; the old connection seems to stay open for `amount` * 20 ms
  kBurst,          // the engine makes `amount` steps at once
  kBurn,           // `amount` steps are refused: they use sequence numbers, but send no batch
  kClear,          // the engine resets its prefix cache
  kClockJump,      // the follower's clock jumps by `amount` ms
  kDamage,         // `amount` entries of the index are changed, if the publisher has digests
  kContradict,     // a caller reports that the state is impossible
  kOversize,       // a batch that ends every connection over which it is sent
  kAskSnapshot,    // another reader sends the legacy `snapshot` request
  // The follower restarts with the state that it saved `amount` ms before.
  kRestartFollower,
};
inline constexpr int kFaultKinds = 25;
const char* FaultName(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kDropLive;
  int publisher = 0;
  int64_t at_ms = 0;
  int64_t duration_ms = 0;
  int64_t amount = 0;
};

std::string ToString(const Fault& fault);

// Returns the faults in order of time. For every fault, at_ms + duration_ms is below `end_ms`.
std::vector<Fault> DrawFaults(uint64_t seed, int publishers, int64_t end_ms);

}  // namespace kvcast::sim
