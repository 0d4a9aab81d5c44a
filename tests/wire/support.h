// Shared parts of the wire tests: hex, the bundled vectors, and short functions to encode and
// decode.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/wire/wire.h"

namespace kvcast::wire {

using Payload = std::vector<uint8_t>;
using ExtraKeyEntries = std::vector<std::optional<ExtraKeys>>;

// Characters that are not hex digits are ignored.
Payload FromHex(std::string_view hex);
std::string ToHex(std::span<const uint8_t> bytes);
// Appends `right`. Tests build MessagePack from parts of bytes and text.
Payload operator+(Payload left, std::span<const uint8_t> right);
// A MessagePack string. REQUIRES: `text` has fewer than 32 bytes.
Payload Text(std::string_view text);

// Path and lines of schemas/vectors/NAME.
std::string VectorPath(const std::string& name);
std::vector<std::string> VectorLines(const std::string& name);
// The payloads of good.jsonl.
std::vector<Payload> GoodPayloads();

struct Decoded {
  Status status;
  EventBatch batch;
  DecodeCounts counts;

  uint64_t rejected(Reject reason) const { return counts.rejected[static_cast<size_t>(reason)]; }
};
Decoded Decode(std::span<const uint8_t> payload, const WireLimits& limits = WireLimits());
// Number of dialects.
inline constexpr uint64_t kDialects = static_cast<uint64_t>(Dialect::kKvcast1) + 1;
Payload Encode(const EventBatch& batch, Dialect dialect = kDefaultDialect);

// A stored event with every field that vLLM has.
BlockStored FullStored();
// A batch of one event.
EventBatch BatchOf(Event event);

}  // namespace kvcast::wire
