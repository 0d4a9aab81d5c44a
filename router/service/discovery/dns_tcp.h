// Sends DNS queries over TCP. The resolver of the C library sends them without a time limit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvcast::router {

inline constexpr size_t kMaxDnsMessageBytes = 65535;  // over TCP

// Sends the query to the name server, and returns its answer: a well-formed message with the id and
// the question of the query. nullopt: no such answer came within `timeout_ms`, which includes the
// time of the connect. Blocks until then at most. Thread-safe. `query`: a well-formed message of at
// most kMaxDnsMessageBytes bytes with one question.
std::optional<std::vector<uint8_t>> AskOverTcp(const sockaddr_storage& server,
                                               std::span<const uint8_t> query, int64_t timeout_ms);

}  // namespace kvcast::router
