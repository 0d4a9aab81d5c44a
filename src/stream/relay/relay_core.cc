// SPDX-License-Identifier: Apache-2.0
#include "src/stream/relay/relay_core.h"

#include "kvcast/wire/wire.h"

namespace kvcast::stream {

// The new epoch is silent until the first batch or change of state, because a status of an empty
// epoch would say that the engine holds no blocks.
void RelayCore::BeginEpoch() {
  open_ = output_.BeginEpoch();
  if (!open_) return;
  empty_ = true;
  ++counters_.epochs;
}

void RelayCore::PublishLost() {
  output_.PublishPayload({}, std::nullopt);
  empty_ = false;
  ++counters_.incomplete;
}

void RelayCore::Apply(Seq seq, std::span<const uint8_t> payload) {
  ++counters_.batches;
  if (!open_) return;
  if (empty_ && seq != Seq(0)) PublishLost();
  DecodeCounts counts;
  const bool decoded =
      DecodeBatch(payload, WireLimits(), {.token_ids = false}, batch_, counts).ok();
  output_.PublishPayload(payload, decoded ? std::optional(batch_.ts) : std::nullopt);
  empty_ = false;
  output_.SetSilent(!known_);
}

void RelayCore::Reset(ResetReason reason) {
  if (!open_) return;
  if (!empty_) BeginEpoch();
  if (open_ && reason != ResetReason::kRestart) PublishLost();
}

void RelayCore::NoteState(SourceState state) {
  known_ =
      state == SourceState::kSynced || state == SourceState::kCleared || state == SourceState::kGap;
  if (!open_) return;
  if (empty_ && state == SourceState::kCleared) PublishLost();
  output_.SetSilent(!known_);
}

}  // namespace kvcast::stream
