// Decoding of one event, in whatever form it comes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "kvcast/core/event.h"
#include "src/wire/field_reader.h"

namespace kvcast::wire {

// What all events of a batch share.
struct EventContext {
  const WireLimits& limits;
  BatchBudget& budget;
  const DecodeOptions& options;
  DecodeCounts& counts;  // unknown_fields and component_fields: added to
  // Set to the place in the input of the event's block hashes if they are a single one in the
  // 9-byte form of integers, else to nullptr.
  const uint8_t*& single_hash;
};

// Decodes the event at the reader's position: a map with a "type", an array that starts with the
// tag, or bytes that hold either. nullopt: done, the reader is behind the event. Otherwise why not;
// the position and `event` are then undefined.
std::optional<Reject> DecodeEvent(Reader& in, const EventContext& context, Event& event);

}  // namespace kvcast::wire
