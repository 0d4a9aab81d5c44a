// The text of an access list (kvcast/stream/curve.h describes its lines).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"
#include "kvcast/stream/curve.h"

namespace kvcast {

constexpr uint8_t CurveRoleBit(CurveRole role) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(role));
}

// Public keys, each with the bits of its roles.
using CurveClients = std::map<std::string, uint8_t, std::less<>>;

// Not ok (kInvalidArgument): the message has the number of the line and the error.
Result<CurveClients> ParseCurveClients(const std::string& text);

}  // namespace kvcast
