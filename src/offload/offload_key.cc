// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kvcast/offload/offload_manager.h"

namespace kvcast {
namespace {

constexpr size_t kGroupBytes = 4;

}  // namespace

OffloadKeyBytes ToBytes(const OffloadKey& key) {
  OffloadKeyBytes bytes;
  const auto hash = key.digest.bytes();
  auto* out = std::copy(hash.begin(), hash.end(), bytes.data.begin());
  for (int shift = 24; shift >= 0; shift -= 8) {
    *out++ = static_cast<uint8_t>(key.group.value >> shift);
  }
  bytes.size = static_cast<uint8_t>(hash.size() + kGroupBytes);
  return bytes;
}

Result<OffloadKey> ParseOffloadKey(std::span<const uint8_t> bytes) {
  OffloadKey key;
  if (bytes.size() <= kGroupBytes || bytes.size() > key.digest.data.size() + kGroupBytes) {
    return Status(StatusCode::kMalformed, "an offload key has " + std::to_string(bytes.size()) +
                                              " bytes, expected 5 to 36");
  }
  const auto hash = bytes.first(bytes.size() - kGroupBytes);
  std::copy(hash.begin(), hash.end(), key.digest.data.begin());
  key.digest.size = static_cast<uint8_t>(hash.size());
  for (const uint8_t byte : bytes.last(kGroupBytes)) {
    key.group.value = key.group.value << 8 | byte;
  }
  return key;
}

}  // namespace kvcast
