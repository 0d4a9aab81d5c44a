// Tier: the kind of memory that holds a block. The reuse rules distinguish these kinds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvcast {

// The tier of an event's medium. An absent medium and the name "GPU" are kGpu. A name that starts
// with "CPU" is kCpu. All other names are kStorage. The comparison ignores case.
enum class Tier : uint8_t { kGpu, kCpu, kStorage };
inline constexpr int kTiers = 3;

Tier TierOf(const std::optional<std::string>& medium);
const char* TierName(Tier tier);  // "GPU", "CPU", "STORAGE"

}  // namespace kvcast
