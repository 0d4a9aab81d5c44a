// Payload: the encoded bytes of one batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace kvcast::stream {

// The ring and the sockets that still send the payload share it. The last owner frees it.
using Payload = std::shared_ptr<const std::vector<uint8_t>>;

}  // namespace kvcast::stream
