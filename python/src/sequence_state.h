// SequenceState: finds the state of one source from its sequence numbers. It is the part of a
// subscriber that an in-process source needs: there is no connection and no replay.
// Thread-compatible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "kvcast/stream/subscriber.h"

namespace kvcast::python {

class SequenceState {
 public:
  // Maximum number of batches whose fingerprints are kept.
  static constexpr size_t kRecent = 1024;

  enum class Step : uint8_t {
    kApply,      // the batch is the next one
    kReset,      // batches are lost: the caller must drop the blocks, then apply the batch
    kDuplicate,  // the batch was applied already
    // An earlier number whose fingerprint differs or is not kept: the publisher may have restarted.
    kConflict,
  };
  // Decides about a batch before it is applied. `seq` nullopt: the caller gives no numbers; the
  // state is then never synced.
  Step Begin(std::optional<uint64_t> seq, uint64_t fingerprint);
  // The number of the batch of the last Begin.
  uint64_t seq() const { return seq_; }
  // Takes the result of a batch. True: the caller must drop the blocks of the source.
  bool End(BatchResult result);
  // Call when the blocks of the source are dropped. A restart begins a new epoch, whose first batch
  // has the number 0.
  void Reset(ResetReason reason);

  const SourceStatus& status() const { return status_; }
  // True: each batch since the last restart had a number.
  bool numbered() const { return numbered_; }

 private:
  Step BeginOld(uint64_t fingerprint);
  void Refresh();

  // next_seq counts only batches whose End was called.
  SourceStatus status_;
  uint64_t seq_ = 0;
  uint64_t next_ = 0;
  std::deque<uint64_t> recent_;  // fingerprints of the batches before next_, in order
  bool began_ = false;
  bool missing_ = false;  // earlier batches are missing
  bool suspect_ = false;
  bool too_large_ = false;
  bool numbered_ = true;
};

}  // namespace kvcast::python
