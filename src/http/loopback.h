// Addresses that only this machine reaches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kvcast {

bool IsLoopbackAddress(std::string_view address);
// Of ZeroMQ: what binds it is heard on this machine alone.
bool IsLoopbackEndpoint(std::string_view endpoint);
// "localhost:80", "127.0.0.1", "[::1]:80": a Host header that only this machine's own pages have.
// A page elsewhere whose name was made to point here ("DNS rebinding") has another one.
bool IsLoopbackHost(std::string_view host);

}  // namespace kvcast
