// The payloads of recorded steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "apps/conformance/scenario/scenario.h"
#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/wire/wire.h"

namespace kvcast::tools {

// The layout in which the recorded engine published.
Dialect DialectOf(const ScenarioConfig& config, const std::vector<Event>& events);

// The batch of `events` for this step, with the time stamp and rank of the recordings.
EventBatch BatchOf(const ScenarioConfig& config, const ScenarioStep& step,
                   std::vector<Event> events);

// Returns the step's events after decoding. Decodes the recorded payload. If no payload is
// recorded, encodes the events first. Not ok: the batch or one of its events was refused.
Result<std::vector<Event>> EventsOverWire(const ScenarioConfig& config, const ScenarioStep& step);

}  // namespace kvcast::tools
