// `kvcast relay`: follows one publisher and publishes its batches again; see StreamRelay.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/support/stop.h"
#include "kvcast/stream/stream_relay.h"
#include "src/stream/net/notice_log.h"

namespace kvcast::tools {
namespace {

// Splits ENDPOINT[,REPLAY_ENDPOINT].
SourceConfig SourceOf(const std::string& text) {
  const size_t comma = text.find(',');
  SourceConfig source;
  source.endpoint = text.substr(0, comma);
  if (comma != std::string::npos) source.replay_endpoint = text.substr(comma + 1);
  return source;
}

Result<StreamRelayConfig> ConfigOf(const RelayOptions& options, Logger& log) {
  StreamRelayConfig config;
  config.source = SourceOf(options.source);
  config.source.topic = options.source_topic;
  config.source.bind = options.source_bind;
  config.source.server_key = options.server_key;
  std::vector<std::string> followed = {config.source.endpoint};
  if (!config.source.replay_endpoint.empty()) followed.push_back(config.source.replay_endpoint);
  auto client = LoadCurveClient({.key = options.server_key.empty() ? "" : options.curve.key,
                                 .server_key = options.server_key,
                                 .insecure = options.insecure_source,
                                 .insecure_flag = "--insecure-source"},
                                followed);
  if (!client.ok()) return client.status();
  if (*client) config.subscriber.curve_keys = (*client)->keys;
  auto server = LoadCurveServer(options.curve, {options.endpoint, options.replay_endpoint});
  if (!server.ok()) return server.status();
  config.publisher.endpoint = options.endpoint;
  config.publisher.replay_endpoint = options.replay_endpoint;
  config.publisher.topic = options.topic;
  config.publisher.ring_batches = static_cast<size_t>(options.ring_batches);
  config.publisher.hashes_only = options.hashes_only;
  config.publisher.repeats_are_refreshes = options.repeats_are_refreshes;
  config.publisher.binds = true;
  config.publisher.curve = std::move(server).value();
  if (config.publisher.curve) config.publisher.curve->on_notice = stream::LogNotices(log, "relay");
  return config;
}

// Writes the changes of the state of the source to the log.
class StateLog {
 public:
  StateLog(Logger& log, std::string source) : log_(log), source_(std::move(source)) {}

  void operator()(const SourceStatus& status) {
    if (status.state == state_) return;
    const bool good = status.state == SourceState::kSynced || status.state == SourceState::kGap ||
                      status.state == SourceState::kBootstrap;
    const SourceState from = std::exchange(state_, status.state);
    log_.Write(log_events::kSourceState.At(good ? LogLevel::kInfo : LogLevel::kWarning), source_,
               {{"from", SourceStateName(from)},
                {"to", SourceStateName(status.state)},
                {"reason", SourceReasonName(status.reason)},
                {"hint", SourceHint(status)},
                {"weight", status.weight},
                {"lag", status.lag},
                {"next_seq", status.next_seq},
                {"lost", status.lost},
                {"resets", status.resets}});
  }

 private:
  Logger& log_;
  const std::string source_;
  SourceState state_ = SourceState::kConnecting;  // the latest state in the log
};

}  // namespace

int RunRelay(const RelayOptions& options) {
  InstallStopSignals();
  const auto log = MakeStderrLog(options.log);
  auto config = ConfigOf(options, *log);
  if (!config.ok()) return Fail(config.status());
  StateLog states(*log, config->source.endpoint);
  config->subscriber.on_state = [&states](WorkerId, const SourceStatus& status) { states(status); };
  std::unique_ptr<RelayHttp> http;
  if (!options.http.listen.empty()) {
    auto started = RelayHttp::Start(options.http, !options.nats.connection.url.empty(), *log);
    if (!started.ok()) return Fail(started.status());
    http = std::move(started).value();
  }
  std::unique_ptr<NatsRelay> nats;
  if (!options.nats.connection.url.empty()) {
    auto made = NatsRelay::Create(options.nats, *log);
    if (!made.ok()) return Fail(made.status());
    nats = std::move(made).value();
    config->recovery = nats->Recover([] { return StopSignal() != 0; });
    if (StopSignal() != 0) return 128 + StopSignal();
  }
  const auto relay = StreamRelay::Create(*config);
  if (!relay.ok()) return Fail(relay.status());
  log->Write(log_events::kStreamListening, "",
             {{"stream", "relay"},
              {"address", (*relay)->endpoint()},
              {"replay", (*relay)->replay_endpoint()},
              {"encrypted", config->publisher.curve.has_value()}});
  config->recovery.reset();
  std::unique_ptr<NatsRelay::Writer> writer;  // destroyed before `relay`
  if (nats) writer = nats->Write((*relay)->history());
  std::shared_ptr<void> shown;  // released before `writer`
  if (http) {
    shown = http->Show([&relay, writer = writer.get()] {
      RelayReport report = {(*relay)->source(), (*relay)->counters(), {}};
      if (writer != nullptr) report.log = writer->status();
      return report;
    });
  }
  while (StopSignal() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (const Status status = (*relay)->status(); !status.ok()) return Fail(status);
  }
  return 128 + StopSignal();
}

}  // namespace kvcast::tools
