// Events for people and for programs: one line of text, or JSON with the wire's field names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvcast/core/event.h"

namespace kvcast::tools {

// Omits the fields that the producer did not send. Exception: a missing parent_block_hash or
// data_parallel_rank is null. A byte string is {"bytes": hex}.
nlohmann::json BatchToJson(const EventBatch& batch);

// "stored   group 1 sliding_window/1024 GPU, 3 blocks of 16, 48 tokens, first 7123..., parent -".
std::string DescribeEvent(const Event& event);

}  // namespace kvcast::tools
