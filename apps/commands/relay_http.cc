// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/relay_http.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "router/service/api/http_log.h"
#include "router/service/config_json.h"
#include "router/service/metrics/process_metrics.h"
#include "router/service/metrics/samples.h"
#include "src/http/loopback.h"

namespace kvcast::tools {
namespace {

using event_log::WriterState;
using event_log::WriterStatus;
using prometheus::MetricFamily;
using prometheus::MetricType;

template <typename Object>
struct Number {
  const char* name;
  const char* help;
  MetricType type;
  uint64_t (*read)(const Object&);
};

constexpr auto kCounter = MetricType::Counter;
constexpr auto kGauge = MetricType::Gauge;

constexpr Number<RelayReport> kNumbers[] = {
    {"kvcast_stream_relay_batches_total",
     "Batches of the engine that the relay published, since the relay started.", kCounter,
     [](const RelayReport& r) { return r.relay.batches; }},
    {"kvcast_stream_relay_epochs_total",
     "Epochs that the relay began, since the relay started. An epoch begins when the relay starts, "
     "and when the engine has restarted or batches were lost.",
     kCounter, [](const RelayReport& r) { return r.relay.epochs; }},
    {"kvcast_stream_relay_incomplete_epochs_total",
     "Epochs that began without the earlier batches of the engine, since the relay started. "
     "Routers then have the state cleared.",
     kCounter, [](const RelayReport& r) { return r.relay.incomplete; }},
    {"kvcast_stream_relay_next_sequence",
     "Sequence number of the engine's batch that the relay publishes next.", kGauge,
     [](const RelayReport& r) { return r.source.next_seq; }},
    {"kvcast_stream_relay_lag_batches",
     "Batches of the engine that the relay has not published yet.", kGauge,
     [](const RelayReport& r) { return r.source.lag; }},
    {"kvcast_stream_relay_gaps_total", "Gaps in the engine's live stream, since the relay started.",
     kCounter, [](const RelayReport& r) { return r.source.gaps; }},
    {"kvcast_stream_relay_lost_batches_total",
     "Batches of the engine that never arrived, since the relay started.", kCounter,
     [](const RelayReport& r) { return r.source.lost; }},
    {"kvcast_stream_relay_reconnects_total",
     "Times that the connection to the engine was established again, since the relay started.",
     kCounter, [](const RelayReport& r) { return r.source.reconnects; }},
};

constexpr Number<WriterStatus> kLogNumbers[] = {
    {"kvcast_stream_relay_event_log_batches_total",
     "Batches that the log has stored, since the relay started.", kCounter,
     [](const WriterStatus& log) { return log.batches; }},
    {"kvcast_stream_relay_event_log_snapshots_total",
     "Snapshots that the log has stored completely, since the relay started.", kCounter,
     [](const WriterStatus& log) { return log.snapshots; }},
    {"kvcast_stream_relay_event_log_overflows_total",
     "Times that the relay's ring had lost batches that were not in the log, since the relay "
     "started. The relay then writes a snapshot instead.",
     kCounter, [](const WriterStatus& log) { return log.overflows; }},
    {"kvcast_stream_relay_event_log_claims_lost_total",
     "Times that another relay wrote to the log while this relay wrote, since the relay started.",
     kCounter, [](const WriterStatus& log) { return log.claims_lost; }},
    {"kvcast_stream_relay_event_log_purge_failures_total",
     "Times that old messages of the log could not be deleted, since the relay started. The next "
     "snapshot deletes them too.",
     kCounter, [](const WriterStatus& log) { return log.purge_failures; }},
};

template <typename Object, size_t kCount>
void AddNumbers(const Number<Object> (&numbers)[kCount], const Object& object,
                std::vector<MetricFamily>& families) {
  for (const Number<Object>& number : numbers) {
    const auto value = static_cast<double>(number.read(object));
    router::AddValue(number.name, number.help, number.type, value, families);
  }
}

// A pod whose relay is not ready gets no requests. So a relay is ready while it follows its engine,
// even if batches are missing or the log cannot be written.
bool IsReady(const RelayReport& report) {
  const SourceState state = report.source.state;
  return state == SourceState::kSynced || state == SourceState::kGap ||
         state == SourceState::kSuspect || state == SourceState::kCleared;
}

HttpReply AnswerReady(const RelayReport& report) {
  const bool ready = IsReady(report);
  nlohmann::json body = {{"ready", ready}, {"source", SourceStateName(report.source.state)}};
  if (report.log) {
    body["log"] = event_log::WriterStateName(report.log->state);
    if (!report.log->error.empty()) body["log_error"] = report.log->error;
  }
  HttpReply reply;
  reply.status = ready ? 200 : 503;
  reply.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return reply;
}

RelayReport Unconnected(bool writes_log) {
  RelayReport report;
  if (writes_log) report.log.emplace();
  return report;
}

// The metrics in Prometheus text format.
std::string RelayMetrics(const RelayReport& report) {
  std::vector<MetricFamily> families;
  router::AddProcessFamilies(families);
  families.push_back({"kvcast_stream_relay_source_state",
                      "1 for the current state of the engine's stream, 0 for all other states.",
                      kGauge,
                      {}});
  router::AddStates(router::kSourceStates, report.source.state, &SourceStateName, {},
                    families.back());
  AddNumbers(kNumbers, report, families);
  if (report.log) {
    families.push_back(
        {"kvcast_stream_relay_event_log_state",
         "1 for the current state of the writing of the log, 0 for all other states. waiting: the "
         "relay waits until no other relay can write. standby: another relay writes.",
         kGauge,
         {}});
    router::AddStates(event_log::kWriterStates, report.log->state, &event_log::WriterStateName, {},
                      families.back());
    AddNumbers(kLogNumbers, *report.log, families);
  }
  std::ostringstream page;
  prometheus::TextSerializer().Serialize(page, families);
  return page.str();
}

}  // namespace

RelayHttp::RelayHttp(bool writes_log) : unconnected_(Unconnected(writes_log)) {}

Result<std::unique_ptr<RelayHttp>> RelayHttp::Start(const RelayHttpFlags& flags, bool writes_log,
                                                    Logger& log) {
  HttpOptions options;
  if (Status status = router::ParseHttpAddress(flags.listen, options); !status.ok()) return status;
  if (!flags.allow_remote && !IsLoopbackAddress(options.address)) {
    return Status(StatusCode::kInvalidArgument,
                  "http: " + options.address + " is not loopback; set --allow-remote");
  }
  options.token_file = flags.token_file;
  options.tls_certificate = flags.tls_cert;
  options.tls_key = flags.tls_key;
  options.threads = 1;
  options.on_answer = [&log](const HttpAnswer& answer) { router::LogAnswer(log, answer); };
  std::unique_ptr<RelayHttp> http(new RelayHttp(writes_log));
  auto server = HttpServer::Start(options, http->Routes());
  if (!server.ok()) return server.status();
  http->server_ = std::move(server).value();
  router::LogListening(log, "relay", options, http->server_->port());
  return http;
}

std::vector<HttpRoute> RelayHttp::Routes() const {
  using Lane = HttpRoute::Lane;
  std::vector<HttpRoute> routes(3);
  routes[0] = {.path = "/healthz",
               .handler = [](const HttpRequest&) { return HttpReply{.body = "{\"ok\":true}\n"}; },
               .lane = Lane::kHealth,
               .access = std::nullopt};
  routes[1] = {.path = "/readyz",
               .handler = [this](const HttpRequest&) { return AnswerReady(Read()); },
               .lane = Lane::kHealth,
               .access = std::nullopt};
  routes[2] = {.path = "/metrics",
               .handler =
                   [this](const HttpRequest&) {
                     return HttpReply{.body = RelayMetrics(Read()),
                                      .content_type = "text/plain; version=0.0.4; charset=utf-8"};
                   },
               .lane = Lane::kObserver,
               .access = AccessRole::kObserve};
  return routes;
}

std::shared_ptr<void> RelayHttp::Show(std::function<RelayReport()> read) {
  const MutexLock lock(mutex_);
  read_ = std::move(read);
  return {static_cast<void*>(this), [this](void*) {
            const MutexLock end(mutex_);
            read_ = nullptr;
          }};
}

// The lock is held during the call of read_, so that the relay cannot end meanwhile.
RelayReport RelayHttp::Read() const {
  const MutexLock lock(mutex_);
  return read_ ? read_() : unconnected_;
}

}  // namespace kvcast::tools
