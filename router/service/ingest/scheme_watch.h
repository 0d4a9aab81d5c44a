// SchemeWatch: the hash scheme of one source, found from the source's stores and from the answer to
// a challenge. The answer to a challenge shows the scheme before the first store at the root
// arrives, and also if the stores carry no tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "kvcast/core/event.h"
#include "kvcast/router/scheme_detector.h"

namespace kvcast::router {

struct ChallengeCounters {
  uint64_t sent = 0;
  uint64_t answered = 0;  // the answer was read, and belongs to the challenge
  // The answer could not be decoded, has other events than stores at the root, or has other tokens
  // than those of the nonce.
  uint64_t rejected = 0;
};

// Thread-compatible.
class SchemeWatch {
 public:
  explicit SchemeWatch(SchemeDetector detector) : detector_(std::move(detector)) {}

  // The caller must pass every batch of the source, in order.
  void Observe(const EventBatch& batch) { detector_.Observe(batch); }
  // The engine restarted: all knowledge is dropped. Counters do not change.
  void Restart();

  // True in two cases. First: the engine has answered no challenge since its start. Second: stores
  // have no token ids, and salts or images are not proven. (Stores with token ids prove salts and
  // images themselves.)
  bool WantsChallenge() const;
  // Returns the nonce of a new challenge. An answer to an earlier challenge is not accepted any
  // more.
  uint64_t BeginChallenge();
  // Takes an answer. Returns the batch, or nullopt if the answer is rejected. A rejected answer
  // shows nothing.
  std::optional<EventBatch> TakeAnswer(std::span<const uint8_t> payload);

  const SchemeVerdict& verdict() const { return detector_.verdict(); }
  // True: the hashes of the engine's stores do not fit their tokens. Stores from before Restart do
  // not count. Stores with a LoRA adapter do not count either, because a changed path of the
  // adapter has the same effect.
  bool is_contradicted() const;
  const SchemeCounters& counters() const { return detector_.counters(); }
  const ChallengeCounters& challenges() const { return challenges_; }

 private:
  SchemeDetector detector_;
  std::optional<uint64_t> nonce_;  // of the challenge that has no answer yet; nullopt: none
  bool answered_ = false;
  std::array<KeyKindCounters, kKeyKinds> before_{};  // SchemeCounters::kinds at the restart
  ChallengeCounters challenges_;
};

}  // namespace kvcast::router
