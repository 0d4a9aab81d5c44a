// SPDX-License-Identifier: Apache-2.0
#include "src/offload/manager/request_uses.h"

#include <algorithm>
#include <utility>

namespace kvcast::offload {

std::vector<RequestUses::Use> RequestUses::Take(OffloadRequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return {};
  std::vector<Use> uses = std::move(found->second.uses);
  requests_.erase(found);
  std::stable_sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    return a.end != b.end ? a.end > b.end : b.key.group < a.key.group;
  });
  return uses;
}

}  // namespace kvcast::offload
