// Decodes one event in any of its wire forms.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "kvcast/core/event.h"
#include "src/wire/field_reader.h"

namespace kvcast::wire {

// State that all events of a batch share.
struct EventContext {
  const WireLimits& limits;
  BatchBudget& budget;
  const DecodeOptions& options;
  // The decoder adds to unknown_fields, component_fields and skipped_fields.
  DecodeCounts& counts;
  // Output. If the event has a single block hash in the 9-byte integer form, the position of that
  // hash in the input; otherwise nullptr.
  const uint8_t*& single_hash;
};

// Decodes the event at the reader's position. The event is a map with a "type", an array that
// starts with the tag, or bytes that hold such a map or array. nullopt: the event is decoded, and
// the reader's position is after the event. Otherwise the result is the reason of the reject, and
// the position and `event` are undefined.
std::optional<Reject> DecodeEvent(Reader& in, const EventContext& context, Event& event);

}  // namespace kvcast::wire
