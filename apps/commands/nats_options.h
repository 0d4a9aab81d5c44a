// The NATS flags of the commands, the writer of a relay's log, and the logs of a router.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "apps/support/temporary_folder.h"
#include "kvcast/core/status.h"
#include "kvcast/stream/relay_history.h"
#include "src/base/logger.h"
#include "src/base/repeater.h"
#include "src/event_log/log_bridge.h"
#include "src/event_log/log_writer.h"
#include "src/event_log/open_log.h"
#include "src/nats/nats_log.h"

namespace kvcast::tools {

struct NatsFlags {
  nats::NatsOptions connection;
  std::string source;  // MODEL/WORKER; relay only
  int64_t replicas = 1;
  int64_t snapshot_mib = 256;
};

// The log of a relay. Thread-compatible.
class NatsRelay {
 public:
  // `log` must outlive the object. Error: kInvalidArgument for a flag or a file.
  static Result<std::unique_ptr<NatsRelay>> Create(const NatsFlags& flags, Logger& log);
  // Returns the state in the log. Waits until the log can be read, or `stop` returns true. nullopt:
  // the log has no state with which the relay can continue, or `stop` returned true.
  std::optional<RelayRecovery> Recover(const std::function<bool()>& stop);
  // Writes the epochs of a relay to the log, until the result is destroyed. `history` and this
  // object must outlive the result.
  class Writer;
  std::unique_ptr<Writer> Write(RelayHistory& history);

 private:
  NatsRelay(std::unique_ptr<event_log::EventLog> stream, event_log::LogWriterConfig config,
            Logger& log)
      : stream_(std::move(stream)), config_(std::move(config)), log_(log) {}

  const std::unique_ptr<event_log::EventLog> stream_;
  const event_log::LogWriterConfig config_;
  Logger& log_;
};

class NatsRelay::Writer {
 public:
  Writer(const NatsRelay& relay, RelayHistory& history);
  event_log::WriterStatus status() const { return writer_.status(); }

 private:
  void Note(const event_log::WriterStatus& status) const;

  const NatsRelay& relay_;
  event_log::LogWriter writer_;
  const std::unique_ptr<Repeater> thread_;
};

// Opens the logs of the sources of a router. One thread at a time may call it.
class NatsLogs {
 public:
  // `log` must outlive the object. Errors: kInvalidArgument for a flag or a file; the folder of the
  // endpoints cannot be made.
  static Result<std::unique_ptr<NatsLogs>> Create(const NatsFlags& flags, Logger& log);
  // See OpenEventLog. The object must outlive the readers.
  Result<OpenLog> Open(const std::string& name, const OpenLogOptions& options);

 private:
  struct Reader {
    std::unique_ptr<event_log::EventLog> stream;
    std::unique_ptr<event_log::LogBridge> bridge;
    std::unique_ptr<Repeater> thread;
  };
  NatsLogs(std::shared_ptr<nats::NatsConnection> connection, TemporaryFolder folder, Logger& log)
      : connection_(std::move(connection)), folder_(std::move(folder)), log_(log) {}

  const std::shared_ptr<nats::NatsConnection> connection_;
  const TemporaryFolder folder_;
  Logger& log_;
  uint64_t opened_ = 0;
};

}  // namespace kvcast::tools
