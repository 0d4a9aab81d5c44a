// Tier: the kind of memory that holds a block, as the reuse rules distinguish it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvcast {

// The tier of an event's medium. "GPU" or an absent medium is kGpu. A name that starts with "cpu"
// (in any case) is kCpu. All other names are kStorage.
enum class Tier : uint8_t { kGpu, kCpu, kStorage };
inline constexpr int kTiers = 3;

Tier TierOf(const std::optional<std::string>& medium);
const char* TierName(Tier tier);  // "GPU", "CPU", "STORAGE"

}  // namespace kvcast
