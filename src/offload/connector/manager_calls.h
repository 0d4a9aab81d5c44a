// ManagerCalls: forwards the scheduler's calls to its manager and reports them to an observer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kvcast/offload/offload_manager.h"
#include "kvcast/offload/offload_observer.h"

namespace kvcast::offload {

class ManagerCalls {
 public:
  using Keys = std::span<const OffloadKey>;

  ManagerCalls(std::unique_ptr<OffloadManager> manager, OffloadObserver* observer)
      : manager_(std::move(manager)), observer_(observer) {}

  LookupResult Lookup(const OffloadKey& key, OffloadRequestId request) {
    const LookupResult result = manager_->Lookup(key, request);
    if (observer_ != nullptr) observer_->OnLookup(key, result);
    return result;
  }
  void Touch(OffloadRequestId request, Keys keys) {
    manager_->Touch(keys);
    if (observer_ != nullptr) observer_->OnTouch(request, keys);
  }
  // False: there is no room.
  bool PrepareStore(OffloadRequestId request, Keys keys, std::span<const int64_t> ends,
                    StorePlan& plan) {
    const bool ok = manager_->PrepareStore(keys, plan, {request, ends}).ok();
    if (observer_ != nullptr) observer_->OnPrepareStore(request, keys, ok ? &plan : nullptr);
    return ok;
  }
  Status PrepareLoad(OffloadRequestId request, Keys keys, std::span<const int64_t> ends,
                     std::vector<SlotId>& slots) {
    Status status = manager_->PrepareLoad(keys, slots, {request, ends});
    if (status.ok() && observer_ != nullptr) observer_->OnPrepareLoad(keys, slots);
    return status;
  }
  void CompleteStore(OffloadRequestId request, Keys keys, bool success) {
    manager_->CompleteStore(keys, success);
    if (observer_ != nullptr) observer_->OnCompleteStore(request, keys, success);
  }
  Status CompleteLoad(OffloadRequestId request, Keys keys) {
    if (observer_ != nullptr) observer_->OnCompleteLoad(request, keys);
    return manager_->CompleteLoad(keys);
  }
  void FinishRequest(OffloadRequestId request) {
    manager_->FinishRequest(request);
    if (observer_ != nullptr) observer_->OnRequestFinished(request);
  }
  void Reset() {
    manager_->Reset();
    if (observer_ != nullptr) observer_->OnReset();
  }

  OffloadManager& manager() { return *manager_; }
  const OffloadManager& manager() const { return *manager_; }

 private:
  const std::unique_ptr<OffloadManager> manager_;
  OffloadObserver* const observer_;
};

}  // namespace kvcast::offload
