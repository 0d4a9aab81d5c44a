// Addresses that only this machine can reach.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kvcast {

bool IsLoopbackAddress(std::string_view address);
// For a ZeroMQ endpoint. True: only this machine can connect to a socket that is bound to the
// endpoint.
bool IsLoopbackEndpoint(std::string_view endpoint);
// True for "localhost:80", "127.0.0.1" or "[::1]:80": a browser sends such a Host header only for a
// page of this machine. If the name of a foreign page resolves to this machine ("DNS rebinding"),
// the header contains the foreign name.
bool IsLoopbackHost(std::string_view host);

}  // namespace kvcast
