// RequestSlots: small dense numbers for the requests that hold blocks, so that per-group state is
// an array element.
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
  // The slot of a request; a slot that was given back, or else a new one, if it has none yet.
  RequestSlot Acquire(const std::string& request_id);
  // REQUIRES: the request has a slot.
  void Release(const std::string& request_id);
  // Requests that have a slot now; and the number of slots ever in use at once.
  size_t size() const;
  size_t capacity() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::engine
