// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_call_log.h"

namespace kvcast::tools {

using Json = nlohmann::json;

void OffloadCallLog::OnLookup(const OffloadKey& key, LookupResult result) {
  constexpr const char* kLetters[] = {"M", "H", "P", "R"};
  if (calls_.empty() || calls_.back().at("call") != "lookup") {
    calls_.push_back({{"call", "lookup"}, {"keys", Json::array()}, {"result", ""}});
  }
  Json& last = calls_.back();
  last["keys"].push_back(names_.Key(key));
  last["result"] = last["result"].get<std::string>() + kLetters[static_cast<size_t>(result)];
}

void OffloadCallLog::OnTouch(OffloadRequestId request, std::span<const OffloadKey> keys) {
  calls_.push_back(
      {{"call", "touch"}, {"req", names_.RequestName(request)}, {"keys", names_.Keys(keys)}});
}

void OffloadCallLog::OnPrepareStore(OffloadRequestId request, std::span<const OffloadKey> keys,
                                    const StorePlan* plan) {
  Json result;
  if (plan != nullptr) {
    result = {{"to_store", names_.Keys(plan->keys)},
              {"slots", OffloadNames::Slots(plan->slots)},
              {"evicted", names_.Keys(plan->evicted)}};
  }
  calls_.push_back({{"call", "prepare_store"},
                    {"req", names_.RequestName(request)},
                    {"keys", names_.Keys(keys)},
                    {"result", result}});
}

void OffloadCallLog::OnPrepareLoad(std::span<const OffloadKey> keys,
                                   std::span<const SlotId> slots) {
  calls_.push_back({{"call", "prepare_load"},
                    {"keys", names_.Keys(keys)},
                    {"slots", OffloadNames::Slots(slots)}});
}

void OffloadCallLog::OnCompleteStore(OffloadRequestId request, std::span<const OffloadKey> keys,
                                     bool success) {
  calls_.push_back({{"call", "complete_store"},
                    {"req", names_.RequestName(request)},
                    {"keys", names_.Keys(keys)},
                    {"success", success}});
}

void OffloadCallLog::OnCompleteLoad(OffloadRequestId request, std::span<const OffloadKey> keys) {
  calls_.push_back({{"call", "complete_load"},
                    {"req", names_.RequestName(request)},
                    {"keys", names_.Keys(keys)}});
}

void OffloadCallLog::OnRequestFinished(OffloadRequestId request) {
  calls_.push_back({{"call", "request_finished"}, {"req", names_.RequestName(request)}});
}

void OffloadCallLog::OnReset() { calls_.push_back({{"call", "reset_cache"}}); }

}  // namespace kvcast::tools
