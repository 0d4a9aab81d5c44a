// Reads JSON from clients into a document, in time and memory that are linear in the text.
//
// nlohmann's parser with a callback takes quadratic time: at the end of each object or array, the
// parser searches all elements of the parent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "kvcast/core/status.h"

namespace kvcast::router {

struct JsonBounds {
  // Values inside more than this number of arrays and objects are left out of the document.
  size_t max_depth = std::numeric_limits<size_t>::max();
  // Values of the document; each takes up to 100 bytes of memory.
  size_t max_values = std::numeric_limits<size_t>::max();
};

// kMalformed: the text is not JSON. kLimit: the document would have more than max_values values.
Result<nlohmann::json> ReadJson(std::string_view text, const JsonBounds& bounds);

}  // namespace kvcast::router
