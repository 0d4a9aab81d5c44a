// Names of requests that a client did not name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace kvcast::router {

// "kvcast-" and 128 random bits of the system as hex digits. A client cannot guess the id of
// another client's request, and so cannot report about it.
std::string RandomRequestId();

}  // namespace kvcast::router
