// One recorded wire vector: a payload and what its producer put into it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/wire/wire.h"

namespace kvcast::tools {

struct WireRecord {
  std::string name;
  std::optional<Dialect> dialect;  // by the prefix of the name; nullopt: a layout unknown here
  std::vector<uint8_t> payload;
  EventBatch decoded;
  uint64_t ts_bits = 0;         // IEEE bits of decoded.ts
  bool unknown_fields = false;  // `decoded` names what EventBatch cannot hold
  std::string file;             // the same payload, relative to the record's folder; may be empty
};

// Parses one line. Errors say what is wrong with it.
Result<WireRecord> ParseWireRecord(std::string_view line);
// Whether a line looks like a record of this class at all.
bool LooksLikeWireRecord(std::string_view line);

}  // namespace kvcast::tools
