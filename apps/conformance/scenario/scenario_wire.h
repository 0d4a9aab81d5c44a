// Recorded steps as the payloads that went over the wire.
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

// `events` as the batch of this step: the recordings' clock and rank.
EventBatch BatchOf(const ScenarioConfig& config, const ScenarioStep& step,
                   std::vector<Event> events);

// The step's events after a way through the decoder: of the recorded payload, or where there is
// none, of what our encoder makes of the events. Not ok: the batch or one of its events was
// refused.
Result<std::vector<Event>> EventsOverWire(const ScenarioConfig& config, const ScenarioStep& step);

}  // namespace kvcast::tools
