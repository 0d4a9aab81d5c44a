// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/request_ids.h"

#include <unistd.h>

#include <array>
#include <cstdint>

#include "src/base/check.h"

namespace kvcast::router {

std::string RandomRequestId() {
  std::array<uint8_t, 16> random;
  KV_CHECK(getentropy(random.data(), random.size()) == 0);
  std::string id = "kvcast-";
  for (const uint8_t byte : random) {
    id += "0123456789abcdef"[byte >> 4];
    id += "0123456789abcdef"[byte & 15];
  }
  return id;
}

}  // namespace kvcast::router
