// OffloadCallLog: the calls from a scheduler to its manager, in the form of the recordings.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "apps/conformance/offload/offload_names.h"
#include "kvcast/offload/offload_observer.h"

namespace kvcast::tools {

class OffloadCallLog : public OffloadObserver {
 public:
  explicit OffloadCallLog(const OffloadNames& names) : names_(names) {}

  // Returns the calls since the previous Take.
  nlohmann::json Take() { return std::exchange(calls_, nlohmann::json::array()); }

  void OnLookup(const OffloadKey& key, LookupResult result) override;
  void OnTouch(OffloadRequestId request, std::span<const OffloadKey> keys) override;
  void OnPrepareStore(OffloadRequestId request, std::span<const OffloadKey> keys,
                      const StorePlan* plan) override;
  void OnPrepareLoad(std::span<const OffloadKey> keys, std::span<const SlotId> slots) override;
  void OnCompleteStore(OffloadRequestId request, std::span<const OffloadKey> keys,
                       bool success) override;
  void OnCompleteLoad(OffloadRequestId request, std::span<const OffloadKey> keys) override;
  void OnRequestFinished(OffloadRequestId request) override;
  void OnReset() override;

 private:
  const OffloadNames& names_;
  nlohmann::json calls_ = nlohmann::json::array();
};

}  // namespace kvcast::tools
