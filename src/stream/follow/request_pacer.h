// RequestPacer: the number of requests for the same data before a source gives the data up, and the
// pauses between these requests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/stream/follow/due.h"

namespace kvcast::stream {

// Thread-compatible. All times are in milliseconds of one monotonic clock.
class RequestPacer {
 public:
  // Number of replays without progress after which a hole (see stream_position.h) is given up. Also
  // the number of failed snapshots after which the state is forgotten.
  static constexpr int kMaxTries = 3;
  // Range of the pause between requests without progress. The pause doubles each time.
  static constexpr int64_t kMinRetryMs = 100;
  static constexpr int64_t kMaxRetryMs = 5000;
  // Pause after a snapshot was committed or given up, before the next snapshot.
  static constexpr int64_t kSnapshotPauseMs = 5000;

  // `jitter_seed` 0: no jitter.
  explicit RequestPacer(uint64_t jitter_seed) : jitter_(jitter_seed) {}

  void Reconnect() { hole_tries_ = snapshot_tries_ = cuts_ = 0; }
  void BeginEpoch() {
    Reconnect();
    snapshot_due_ms_ = kAtOnce;
  }

  // An attempt to fill the hole at `next` has failed. True: the hole must be given up.
  bool GiveUpHole(uint64_t next) {
    if (std::exchange(hole_, next) != next) hole_tries_ = 0;
    if (++hole_tries_ < kMaxTries) return false;
    hole_tries_ = 0;
    return true;
  }
  void ForgetHole() { hole_tries_ = 0; }

  // A snapshot has failed. True: snapshots must be given up for a while.
  bool GiveUpSnapshot() {
    if (++snapshot_tries_ < kMaxTries) return false;
    snapshot_tries_ = 0;
    return true;
  }
  // No snapshot is requested before this time.
  int64_t snapshot_due_ms() const { return snapshot_due_ms_; }
  void PauseSnapshots(int64_t now_ms) { PauseSnapshotsUntil(now_ms + kSnapshotPauseMs); }
  void PauseSnapshotsUntil(int64_t due_ms) {
    snapshot_due_ms_ = due_ms;
    snapshot_tries_ = 0;
  }

  // The number of answers that were cut off since the last progress.
  int cuts() const { return cuts_; }
  void NoteCut() { ++cuts_; }
  void ForgetCuts() { cuts_ = 0; }
  // A reply may end every connection, for example because its frame is too long. So each cut
  // doubles the pause before the next request.
  int64_t cut_pause_ms() const { return kMinRetryMs << std::clamp(cuts_ - 1, 0, kMaxDoublings); }

  // While `next` does not change and there is no progress, only the first kMaxTries requests are
  // allowed without a pause. Later requests are allowed at growing intervals. True: a request is
  // allowed, and was counted.
  bool MayAskAgain(uint64_t next, int64_t now_ms) {
    if (std::exchange(asked_from_, next) != next) fruitless_ = 0;
    if (fruitless_ >= kMaxTries && now_ms < retry_due_ms_) return false;
    ++fruitless_;
    const int doublings = std::clamp(fruitless_ - kMaxTries, 0, kMaxDoublings);
    retry_due_ms_ = now_ms + Jittered(std::min(kMinRetryMs << doublings, kMaxRetryMs));
    return true;
  }
  void NoteProgress() { fruitless_ = 0; }
  int64_t retry_due_ms() const { return retry_due_ms_; }

  // Returns `ms` plus or minus up to 25 %.
  int64_t Jittered(int64_t ms) {
    if (jitter_ == 0) return ms;
    jitter_ = jitter_ * 6364136223846793005 + 1442695040888963407;
    return ms - ms / 4 + static_cast<int64_t>((jitter_ >> 33) % static_cast<uint64_t>(ms / 2 + 1));
  }

 private:
  static constexpr int kMaxDoublings = 6;

  int hole_tries_ = 0;  // attempts to fill the hole at hole_
  uint64_t hole_ = 0;
  int snapshot_tries_ = 0;
  int64_t snapshot_due_ms_ = kAtOnce;
  int cuts_ = 0;
  int fruitless_ = 0;        // consecutive requests without progress
  uint64_t asked_from_ = 0;  // `next` at the latest of these requests
  int64_t retry_due_ms_ = kAtOnce;
  uint64_t jitter_;
};

}  // namespace kvcast::stream
