// SPDX-License-Identifier: Apache-2.0
#include "src/engine/request_slots.h"

#include <absl/container/flat_hash_map.h>

#include <vector>

#include "src/base/check.h"

namespace kvcast::engine {

class RequestSlots::Impl {
 public:
  absl::flat_hash_map<std::string, RequestSlot> slots;
  std::vector<RequestSlot> unused;
};

RequestSlots::RequestSlots() : impl_(std::make_unique<Impl>()) {}

RequestSlots::~RequestSlots() = default;

std::optional<RequestSlot> RequestSlots::Find(const std::string& request_id) const {
  const auto found = impl_->slots.find(request_id);
  if (found == impl_->slots.end()) return std::nullopt;
  return found->second;
}

RequestSlot RequestSlots::Acquire(const std::string& request_id) {
  if (const auto found = Find(request_id)) return *found;
  RequestSlot slot(static_cast<uint32_t>(impl_->slots.size()));
  if (!impl_->unused.empty()) {
    slot = impl_->unused.back();
    impl_->unused.pop_back();
  }
  impl_->slots.emplace(request_id, slot);
  return slot;
}

void RequestSlots::Release(const std::string& request_id) {
  const auto found = impl_->slots.find(request_id);
  KV_CHECK(found != impl_->slots.end());
  impl_->unused.push_back(found->second);
  impl_->slots.erase(found);
}

size_t RequestSlots::size() const { return impl_->slots.size(); }

size_t RequestSlots::capacity() const { return impl_->slots.size() + impl_->unused.size(); }

}  // namespace kvcast::engine
