// SPDX-License-Identifier: Apache-2.0
#include "kvcast/core/tier.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "kvcast/core/event.h"

namespace kvcast {
namespace {

bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), text.begin(),
                                                    [](unsigned char a, unsigned char b) {
                                                      return std::tolower(a) == std::tolower(b);
                                                    });
}

}  // namespace

Tier TierOf(const std::optional<std::string>& medium) {
  if (!medium || *medium == kMediumGpu) return Tier::kGpu;
  if (medium->size() == 3 && StartsWithIgnoringCase(*medium, kMediumGpu)) return Tier::kGpu;
  return StartsWithIgnoringCase(*medium, kMediumCpu) ? Tier::kCpu : Tier::kStorage;
}

const char* TierName(Tier tier) {
  switch (tier) {
    case Tier::kGpu:
      return "GPU";
    case Tier::kCpu:
      return "CPU";
    case Tier::kStorage:
      break;
  }
  return "STORAGE";
}

}  // namespace kvcast
