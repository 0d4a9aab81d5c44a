// The notices of CURVE servers in the log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "kvcast/stream/curve.h"
#include "src/base/logger.h"

namespace kvcast::stream {

// For CurveServer::on_notice. `stream`: what the server publishes, for example "relay". The logger
// must outlive the server.
std::function<void(const CurveNotice&)> LogNotices(Logger& log, std::string stream);

}  // namespace kvcast::stream
