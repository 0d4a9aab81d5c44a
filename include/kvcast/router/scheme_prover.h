// SchemeProver: answers challenges for an engine whose configuration is not known. It finds the
// hash scheme in the engine's own stores, before their token ids are removed. It has no other
// source, so an answer shows the scheme that the engine has used.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/router/scheme_detector.h"

namespace kvcast {

// Thread-safe. The functions fit PublisherConfig::observe and PublisherConfig::answer_challenge.
class SchemeProver {
 public:
  // The arguments and errors are those of SchemeDetector::Create.
  static Result<std::unique_ptr<SchemeProver>> Create(const SchemeDetectorConfig& config);
  ~SchemeProver();

  // Takes a batch of the engine. The caller must pass every batch, in order. nullptr: the content
  // of a batch is not known, and all proofs are dropped. Cost: see SchemeDetector.
  void Observe(const EventBatch* batch);

  // Returns the answer to a challenge: one store event for each prompt whose form is proven; see
  // kvcast/hash/chain_challenge.h. The first prompt fills one block of the smallest size that the
  // engine has stored. Each of the other prompts fills one hash unit. The answer has events only if
  // the scheme and the form without extra keys are proven. A store that contradicts the scheme ends
  // the proof until later stores prove the scheme again. With ExtraKeyScheme::kTagged, the answer
  // has no store with an adapter, because the hash covers the path of the adapter, and no event
  // carries this path.
  //
  // Cost: the hashes of one block and of at most three units.
  EventBatch Answer(uint64_t nonce) const;

 private:
  class Impl;
  explicit SchemeProver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
