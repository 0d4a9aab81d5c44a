// One recorded wire vector: a payload and the values that its producer encoded.
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
  std::optional<Dialect> dialect;  // from the prefix of the name; nullopt: an unknown layout
  std::vector<uint8_t> payload;
  EventBatch decoded;
  uint64_t ts_bits = 0;         // IEEE bits of decoded.ts
  bool unknown_fields = false;  // the record has an event or a field that EventBatch cannot hold
  // Path of a file with the same payload, relative to the folder of the record. Empty: no file.
  std::string file;
};

// Parses one line. Errors describe the problem.
Result<WireRecord> ParseWireRecord(std::string_view line);
// True: the line may be a record of this class. Used to select files.
bool LooksLikeWireRecord(std::string_view line);

}  // namespace kvcast::tools
