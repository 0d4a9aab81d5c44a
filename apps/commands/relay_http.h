// RelayHttp: the health and the metrics of `kvcast relay` over HTTP.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/stream_relay.h"
#include "src/base/logger.h"
#include "src/base/mutex.h"
#include "src/event_log/log_writer.h"
#include "src/http/http_server.h"

namespace kvcast::tools {

struct RelayHttpFlags {
  std::string listen;  // ADDR:PORT
  std::string token_file;
  std::string tls_cert;
  std::string tls_key;
  bool allow_remote = false;  // `listen` may be beyond loopback
};

struct RelayReport {
  SourceStatus source;
  StreamRelayCounters relay;
  std::optional<event_log::WriterStatus> log;  // nullopt: the relay writes no log
};

// Answers GET /healthz, /readyz and /metrics. Thread-safe.
class RelayHttp {
 public:
  // Before Show, the server shows a relay that is not connected. `log` must outlive the server.
  // Errors: those of HttpServer::Start; kInvalidArgument: a flag is wrong.
  static Result<std::unique_ptr<RelayHttp>> Start(const RelayHttpFlags& flags, bool writes_log,
                                                  Logger& log);
  // The pages show the reports of `read` until the returned pointer is released. `read` must be
  // thread-safe. The pointer must be released before the server is destroyed.
  std::shared_ptr<void> Show(std::function<RelayReport()> read);

 private:
  explicit RelayHttp(bool writes_log);
  std::vector<HttpRoute> Routes() const;
  RelayReport Read() const;

  const RelayReport unconnected_;
  mutable Mutex mutex_;
  std::function<RelayReport()> read_ KV_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;  // declared last: its threads use the other members
};

}  // namespace kvcast::tools
