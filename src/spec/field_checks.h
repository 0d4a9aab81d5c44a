// The checks of configurations: one function per rule. Each error names its field.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "kvcast/core/status.h"

namespace kvcast::internal {

// The maximum of block sizes, windows and lengths. The product of two such numbers fits in 64 bits.
inline constexpr int64_t kMaxTokens = int64_t{1} << 31;

inline Status Invalid(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

inline Status CheckRange(const std::string& field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return Invalid(field + " must be between " + std::to_string(min) + " and " + std::to_string(max) +
                 ", is " + std::to_string(value));
}

inline Status CheckMultiple(const std::string& field, int64_t value, const std::string& of_field,
                            int64_t of) {
  if (value % of == 0) return {};
  return Invalid(field + " (" + std::to_string(value) + ") must be a multiple of " + of_field +
                 " (" + std::to_string(of) + ")");
}

// Returns the first check that failed, or ok.
inline Status FirstError(std::initializer_list<Status> checks) {
  for (const Status& status : checks) {
    if (!status.ok()) return status;
  }
  return {};
}

// Returns the product of counts that are not negative; nullopt if it does not fit in 63 bits.
inline std::optional<int64_t> Product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

}  // namespace kvcast::internal
