// Parts of the input of a fuzz target, and checks that several targets share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kvcast/core/status.h"
#include "src/base/check.h"

namespace kvcast::fuzz {

using Bytes = std::span<const uint8_t>;

inline std::string_view TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Two bytes with the length, low byte first, precede each part. The last part may be cut off.
class Parts {
 public:
  explicit Parts(Bytes bytes) : bytes_(bytes) {}
  std::optional<Bytes> Next() {
    if (bytes_.size() < 2) return std::nullopt;
    const size_t wanted = bytes_[0] + size_t{256} * bytes_[1];
    bytes_ = bytes_.subspan(2);
    const Bytes part = bytes_.first(std::min(wanted, bytes_.size()));
    bytes_ = bytes_.subspan(part.size());
    return part;
  }

 private:
  Bytes bytes_;
};

// Checks that the error of a refused input has a reason of bounded length.
inline void CheckReason(const Status& status) {
  constexpr size_t kMaxReasonBytes = 8 << 10;
  if (status.ok()) return;
  KV_CHECK(!status.message().empty() && status.message().size() <= kMaxReasonBytes);
}

}  // namespace kvcast::fuzz
