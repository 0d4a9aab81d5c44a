// OffloadObserver: what a scheduler asks of its manager, call by call; for conformance runs, traces
// and tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kvcast/offload/offload_manager.h"

namespace kvcast {

// Called on the scheduler's thread, after each call, in order. What the spans show is gone when the
// function returns.
class OffloadObserver {
 public:
  virtual ~OffloadObserver() = default;
  virtual void OnLookup(const OffloadKey& /*key*/, LookupResult /*result*/) {}
  virtual void OnTouch(OffloadRequestId /*request*/, std::span<const OffloadKey> /*keys*/) {}
  // `plan` is nullptr where there was no room.
  virtual void OnPrepareStore(OffloadRequestId /*request*/, std::span<const OffloadKey> /*keys*/,
                              const StorePlan* /*plan*/) {}
  virtual void OnPrepareLoad(std::span<const OffloadKey> /*keys*/,
                             std::span<const SlotId> /*slots*/) {}
  virtual void OnCompleteStore(OffloadRequestId /*request*/, std::span<const OffloadKey> /*keys*/,
                               bool /*success*/) {}
  virtual void OnCompleteLoad(OffloadRequestId /*request*/, std::span<const OffloadKey> /*keys*/) {}
  virtual void OnRequestFinished(OffloadRequestId /*request*/) {}
  virtual void OnReset() {}
};

}  // namespace kvcast
