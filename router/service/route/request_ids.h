// Ids for requests to which the client gave no id.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace kvcast::router {

// "kvcast-" and 128 random bits of the system as hex digits. A client cannot guess the id of
// another client's request, so the client cannot send feedback about that request.
std::string RandomRequestId();

}  // namespace kvcast::router
