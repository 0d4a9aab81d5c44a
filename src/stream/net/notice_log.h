// Writes the notices of CURVE servers to the log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "kvcast/stream/curve.h"
#include "src/base/logger.h"

namespace kvcast::stream {

// Returns a function for CurveServer::on_notice. `stream`: the name of the stream that the server
// publishes, for example "relay". The logger must outlive the server.
std::function<void(const CurveNotice&)> LogNotices(Logger& log, std::string stream);

}  // namespace kvcast::stream
