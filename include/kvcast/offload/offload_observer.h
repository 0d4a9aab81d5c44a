// OffloadObserver: receives the calls of a scheduler to its OffloadManager. For conformance runs,
// traces and tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kvcast/offload/offload_manager.h"

namespace kvcast {

// The methods run on the scheduler's thread, in the order of the calls. Each method runs directly
// after the call that it reports. Exception: OnCompleteLoad runs directly before the call. A
// PrepareLoad that fails is not reported. All spans and pointers are valid only during the method.
class OffloadObserver {
 public:
  virtual ~OffloadObserver() = default;
  virtual void OnLookup(const OffloadKey& /*key*/, LookupResult /*result*/) {}
  virtual void OnTouch(OffloadRequestId /*request*/, std::span<const OffloadKey> /*keys*/) {}
  // `plan` is nullptr if the call failed.
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
