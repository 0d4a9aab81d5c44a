// SPDX-License-Identifier: Apache-2.0
#include "kvcast/spec/cache_spec.h"

#include <algorithm>
#include <array>

#include "src/spec/window.h"

namespace kvcast {
namespace {

constexpr std::array<std::string_view, 11> kKindNames = {
    "full_attention",
    "mla_attention",
    "sink_full_attention",
    "sliding_window",
    "sliding_window_mla",
    "chunked_local_attention",
    "mamba",
    "encoder_only_attention",
    "cross_attention",
    "circular_buffer",
    "unknown",
};

// Indexed by EngineRules.
constexpr std::array<std::string_view, 5> kRulesNames = {"v0.21", "2026-05", "2026-08", "v0.32",
                                                         "v0.33"};

}  // namespace

std::string_view EngineRulesName(EngineRules rules) {
  return kRulesNames[static_cast<size_t>(rules)];
}

std::optional<EngineRules> ParseEngineRules(std::string_view name) {
  const auto found = std::find(kRulesNames.begin(), kRulesNames.end(), name);
  if (found == kRulesNames.end()) return std::nullopt;
  return static_cast<EngineRules>(found - kRulesNames.begin());
}

std::string EngineRulesNames() {
  std::string names;
  for (const std::string_view name : kRulesNames) {
    if (!names.empty()) names += ", ";
    names += '"' + std::string(name) + '"';
  }
  return names;
}

std::string_view SpecKindName(SpecKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < kKindNames.size() ? kKindNames[index] : kKindNames.back();
}

SpecKind ParseSpecKind(std::string_view name) {
  const auto found = std::find(kKindNames.begin(), kKindNames.end(), name);
  if (found == kKindNames.end()) return SpecKind::kUnknown;
  return static_cast<SpecKind>(found - kKindNames.begin());
}

int64_t SkippedTokens(const GroupSpec& group, int64_t computed_tokens) {
  if (IsWindowKind(group.kind)) {
    return std::max<int64_t>(0, computed_tokens - internal::RetainedWindowTokens(group));
  }
  if (group.kind == SpecKind::kChunkedLocalAttention) {
    return computed_tokens / group.chunk_size * group.chunk_size;
  }
  // A recurrent state replaces all states before it.
  if (group.kind == SpecKind::kMamba) return std::max<int64_t>(0, computed_tokens - 1);
  return 0;
}

}  // namespace kvcast
