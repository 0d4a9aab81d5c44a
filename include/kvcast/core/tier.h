// Tier: where a block lies, as far as reuse is concerned.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvcast {

// Medium of the event: GPU or absent is kGpu, a name that starts with "cpu" (in any case) is kCpu,
// everything else kStorage.
enum class Tier : uint8_t { kGpu, kCpu, kStorage };
inline constexpr int kTiers = 3;

Tier TierOf(const std::optional<std::string>& medium);
const char* TierName(Tier tier);  // "GPU", "CPU", "STORAGE"

}  // namespace kvcast
