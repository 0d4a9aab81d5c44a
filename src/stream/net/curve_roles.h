// CurveRoles: the roles of the clients in an access list. kvcast/stream/curve.h (AccessList)
// describes the lines of the list.
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

// The roles of each client, as bits (CurveRoleBit), by the public key of the client.
using CurveRoles = std::map<std::string, uint8_t, std::less<>>;

// Parses the text of an access list. kInvalidArgument: a line is invalid; the message contains the
// number of the line and the error.
Result<CurveRoles> ParseCurveRoles(const std::string& text);

}  // namespace kvcast
