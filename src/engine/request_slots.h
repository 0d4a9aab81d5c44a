// RequestSlots: small dense numbers for the requests that hold blocks, so that the state per group
// is an array element.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kvcast/core/ids.h"

namespace kvcast::engine {

using RequestSlot = StrongId<struct RequestSlotTag, uint32_t>;

class RequestSlots {
 public:
  RequestSlots();
  ~RequestSlots();

  std::optional<RequestSlot> Find(const std::string& request_id) const;
  // The slot of a request. A request without a slot gets a released slot. If no released slot is
  // left, it gets a new slot.
  RequestSlot Acquire(const std::string& request_id);
  // REQUIRES: the request has a slot.
  void Release(const std::string& request_id);
  // size: the number of requests that have a slot. capacity: the highest number of slots that were
  // in use at the same time.
  size_t size() const;
  size_t capacity() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::engine
