// TailFilter: which of the events on a stream a person asked for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::tools {

// What is not given matches everything. Model and worker are read from the relay's topics (see
// relay_topic.h), so that they match nothing on a stream of other topics.
struct TailFilter {
  std::string model;
  std::string worker;
  std::optional<int64_t> rank;
  std::string tier;  // GPU, CPU or STORAGE, in any case
  std::optional<int64_t> group;

  bool empty() const { return model.empty() && worker.empty() && !rank && tier.empty() && !group; }
  // Topic prefix that lets through all that can match.
  std::string Prefix() const;
  // Takes out what does not match; false: nothing is left. Clears are of all groups.
  bool Keep(std::string_view topic, EventBatch& batch) const;
};

}  // namespace kvcast::tools
