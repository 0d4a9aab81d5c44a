// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/nats_options.h"

#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/clock.h"
#include "src/event_log/log_recovery.h"
#include "src/event_log/log_threads.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::tools {

Result<std::unique_ptr<NatsRelay>> NatsRelay::Create(const NatsFlags& flags, Logger& log) {
  auto source = nats::NatsSource::Parse(flags.source);
  if (!source.ok())
    return Status(StatusCode::kInvalidArgument, "--nats-source: " + source.status().message());
  auto connection = nats::NatsConnection::Create(flags.connection);
  if (!connection.ok()) return connection.status();
  event_log::LogWriterConfig config;
  config.source = flags.source;
  config.writer = router::NewSeed();
  config.snapshot_bytes = static_cast<uint64_t>(flags.snapshot_mib) << 20;
  config.now_ms = SteadyMs;
  auto stream =
      nats::MakeNatsLog(std::move(connection).value(), *source, static_cast<int>(flags.replicas));
  return std::unique_ptr<NatsRelay>(new NatsRelay(std::move(stream), std::move(config), log));
}

std::optional<RelayRecovery> NatsRelay::Recover(const std::function<bool()>& stop) {
  std::string logged_error;
  while (!stop()) {
    auto recovery = event_log::ReadRecovery(*stream_);
    if (recovery.ok()) {
      const uint64_t batches = *recovery ? (*recovery)->batches.size() : 0;
      log_.Write(log_events::kNatsState, config_.source,
                 {{"state", *recovery ? "recovered" : "empty"}, {"batches", batches}});
      return std::move(recovery).value();
    }
    const std::string& error = recovery.status().message();
    if (std::exchange(logged_error, error) != error) {
      log_.Write(log_events::kNatsState.At(LogLevel::kWarning), config_.source,
                 {{"state", "unreachable"}, {"reason", error}});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return std::nullopt;
}

std::unique_ptr<NatsRelay::Writer> NatsRelay::Write(RelayHistory& history) {
  return std::make_unique<Writer>(*this, history);
}

NatsRelay::Writer::Writer(const NatsRelay& relay, RelayHistory& history)
    : relay_(relay),
      writer_(relay.config_, history, *relay.stream_),
      thread_(event_log::RunInThread(
          writer_, [this](const event_log::WriterStatus& status) { Note(status); })) {}

void NatsRelay::Writer::Note(const event_log::WriterStatus& status) const {
  const bool good = status.state == event_log::WriterState::kWriting ||
                    status.state == event_log::WriterState::kWaiting;
  relay_.log_.Write(log_events::kNatsState.At(good ? LogLevel::kInfo : LogLevel::kWarning),
                    relay_.config_.source,
                    {{"state", event_log::WriterStateName(status.state)},
                     {"reason", status.error},
                     {"batches", status.batches},
                     {"snapshots", status.snapshots},
                     {"overflows", status.overflows},
                     {"claims_lost", status.claims_lost}});
}

Result<std::unique_ptr<NatsLogs>> NatsLogs::Create(const NatsFlags& flags, Logger& log) {
  auto connection = nats::NatsConnection::Create(flags.connection);
  if (!connection.ok()) return connection.status();
  auto folder = TemporaryFolder::Create("kvcast-nats-");
  if (!folder.ok()) return folder.status();
  return std::unique_ptr<NatsLogs>(
      new NatsLogs(std::move(connection).value(), std::move(folder).value(), log));
}

Result<OpenLog> NatsLogs::Open(const std::string& name, const OpenLogOptions& options) {
  auto source = nats::NatsSource::Parse(name);
  if (!source.ok()) return source.status();
  const std::string path = "ipc://" + folder_.path() + '/' + std::to_string(opened_++);
  event_log::LogBridgeConfig config;
  config.endpoint = path + ".live";
  config.replay_endpoint = path + ".replay";
  config.repeats_are_refreshes = options.repeats_are_refreshes;
  config.max_blocks = options.max_blocks;
  config.now_ms = SteadyMs;
  auto reader = std::make_shared<Reader>();
  reader->stream = nats::MakeNatsLog(connection_, *source);
  reader->bridge = std::make_unique<event_log::LogBridge>(config, *reader->stream);
  const auto write = [&log = log_, name](const event_log::BridgeStatus& status) {
    const bool good = status.state == event_log::BridgeState::kFollowing ||
                      status.state == event_log::BridgeState::kReading;
    log.Write(log_events::kNatsState.At(good ? LogLevel::kInfo : LogLevel::kWarning), name,
              {{"state", event_log::BridgeStateName(status.state)},
               {"reason", status.error},
               {"snapshots", status.replica.snapshots},
               {"rewinds", status.rewinds},
               {"mismatches", status.mismatches}});
  };
  try {
    reader->thread = event_log::RunInThread(*reader->bridge, write);
  } catch (const std::system_error& error) {
    return Status(StatusCode::kUnavailable, std::string("cannot start a thread: ") + error.what());
  }
  const auto status = [bridge = reader->bridge.get()] { return bridge->status(); };
  return OpenLog{config.endpoint, config.replay_endpoint, std::move(reader), status};
}

}  // namespace kvcast::tools
