// TailFilter: selects the requested events of a stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::tools {

// A field without a value matches everything. Model and worker are read from the relay's topics
// (relay_topic.h), so a filter with one of them matches nothing on a stream with other topics. The
// rank is read from the relay's topic, else from the batch. A missing rank or group counts as 0.
struct TailFilter {
  std::string model;
  std::string worker;
  std::optional<int64_t> rank;
  std::string tier;  // GPU, CPU or STORAGE; case does not matter
  std::optional<int64_t> group;

  bool empty() const { return model.empty() && worker.empty() && !rank && tier.empty() && !group; }
  // Returns a topic prefix. A subscription to it receives all messages that can match.
  std::string Prefix() const;
  // Removes the events that do not match. A clear matches every group. False: the batch does not
  // match, or no event is left. Without a filter, a batch without events is kept.
  bool Keep(std::string_view topic, EventBatch& batch) const;
};

}  // namespace kvcast::tools
