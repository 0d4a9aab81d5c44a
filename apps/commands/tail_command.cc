// `kvcast tail`: follows event streams. Prints one header line per batch and one line per event.
// With --json: one JSON object per batch. With --stats: the counts by topic, once per second. If
// the reader of a pipe on stdout closes it, the command ends with the exit code 128 + SIGPIPE.
// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands/commands.h"
#include "apps/commands/tail_filter.h"
#include "apps/commands/tail_stats.h"
#include "apps/support/capture.h"
#include "apps/support/event_json.h"
#include "apps/support/printable.h"
#include "apps/support/stop.h"
#include "kvcast/core/redact.h"
#include "kvcast/wire/wire.h"
#include "src/stream/net/socket.h"

namespace kvcast::tools {
namespace {

using Message = CapturedMessage;

// The socket closes a connection that sends a longer frame.
constexpr int64_t kMaxFrameBytes = (64 << 20) + (64 << 10);
constexpr long kWaitMs = 200;

std::string TextOf(stream::Frame frame) {
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

// False: there is no message, or the message is not a live message of three frames.
bool ReceiveMessage(stream::Socket& socket, stream::Multipart& received, Message& message) {
  if (socket.Receive(received) == stream::RecvResult::kNone) return false;
  const auto batch = stream::ParseLive(received.frames());
  if (!batch) return false;
  message.seq = batch->seq;
  message.topic = TextOf(received.frames()[0]);
  message.payload = TextOf(batch->payload);
  return true;
}

void PrintJson(const Message& message, const EventBatch& batch, const DecodeCounts& counts) {
  nlohmann::json line = BatchToJson(batch);
  line["topic"] = message.topic;
  line["seq"] = message.seq;
  if (counts.rejected_total() > 0) line["rejected"] = counts.rejected_total();
  // The output is ASCII only: a terminal may interpret other characters as commands.
  std::printf("%s\n", line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
}

void PrintEvents(const Message& message, const EventBatch& batch, const DecodeCounts& counts) {
  std::printf("%-20s seq %-8llu rank %-4s %zu events\n", Printable(message.topic).c_str(),
              static_cast<unsigned long long>(message.seq),
              batch.data_parallel_rank ? std::to_string(*batch.data_parallel_rank).c_str() : "-",
              batch.events.size());
  for (const Event& event : batch.events) {
    std::printf("  %s\n", Printable(DescribeEvent(event)).c_str());
  }
  if (counts.rejected_total() > 0) {
    std::printf("  events that could not be decoded: %llu\n",
                static_cast<unsigned long long>(counts.rejected_total()));
  }
}

// Processes each message in this order: decode, filter, redact, record, show.
class Tail {
 public:
  explicit Tail(const TailOptions& options) : options_(options) {
    filter_ = {.model = options.model,
               .worker = options.worker,
               .rank = options.rank,
               .tier = options.tier,
               .group = options.group};
  }
  Status Open() {
    if (options_.record.empty()) return Status();
    auto writer = CaptureWriter::Create(options_.record);
    if (!writer.ok()) return writer.status();
    writer_.emplace(std::move(writer).value());
    return Status();
  }
  std::string Prefix() const { return options_.topic.empty() ? filter_.Prefix() : options_.topic; }
  // Returns whether the message counts for --count.
  Result<bool> Process(Message& message);
  // Repaints the statistics once a second, and at the end.
  void Repaint(bool last);

 private:
  Status Record(Message& message, const EventBatch& batch);

  const TailOptions& options_;
  TailFilter filter_;
  std::optional<CaptureWriter> writer_;
  TailStats stats_;
  std::chrono::steady_clock::time_point painted_ = std::chrono::steady_clock::now();
};

Result<bool> Tail::Process(Message& message) {
  EventBatch batch;
  DecodeCounts counts;
  const std::span<const uint8_t> payload(reinterpret_cast<const uint8_t*>(message.payload.data()),
                                         message.payload.size());
  if (const Status status = DecodeBatch(payload, WireLimits{}, batch, counts); !status.ok()) {
    std::fprintf(stderr, "kvcast: seq %llu: %s\n", static_cast<unsigned long long>(message.seq),
                 Printable(status.message()).c_str());
    return true;
  }
  if (!filter_.Keep(message.topic, batch)) return false;
  if (options_.redact) Redact(batch);
  if (const Status status = Record(message, batch); !status.ok()) return status;
  if (options_.stats) {
    stats_.Note(message.topic, message.seq, batch, message.payload.size());
    return true;
  }
  options_.json ? PrintJson(message, batch, counts) : PrintEvents(message, batch, counts);
  std::fflush(stdout);
  return true;
}

// Records the received payload. With a filter or with redaction, encodes the remaining events and
// records this encoding.
Status Tail::Record(Message& message, const EventBatch& batch) {
  if (!writer_) return Status();
  if (options_.redact || !filter_.empty()) {
    std::vector<uint8_t> bytes;
    if (Status status = EncodeBatch(batch, Dialect::kKvcast1, bytes); !status.ok()) return status;
    message.payload.assign(bytes.begin(), bytes.end());
  }
  message.time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return writer_->Write(message);
}

void Tail::Repaint(bool last) {
  if (!options_.stats) return;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - painted_;
  if (!last && since.count() < 1) return;
  painted_ = std::chrono::steady_clock::now();
  if (options_.json) {
    std::printf("%s\n", stats_.Json().c_str());
  } else {
    // A terminal shows only the newest table; a file gets all tables.
    if (isatty(STDOUT_FILENO) != 0) std::printf("\x1b[H\x1b[2J");
    std::printf("%s", stats_.Table(since.count()).c_str());
  }
  std::fflush(stdout);
}

// Returns the exit code if stdout takes no more output, otherwise 0.
int CheckOutput() {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  // A pipe without a reader has POLLERR, even while nothing is written.
  if (poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0) return 128 + SIGPIPE;
  if (std::ferror(stdout) == 0) return 0;
  return Fail(Status(StatusCode::kUnavailable, "stdout: cannot write"));
}

Result<stream::Socket> OpenSocket(const TailOptions& options, const std::string& prefix) {
  const auto curve = LoadCurveClient(options.curve, options.endpoints);
  if (!curve.ok()) return curve.status();
  auto socket = stream::Socket::Create(stream::Context::Create(), ZMQ_SUB);
  if (!socket.ok()) return socket;
  socket->SetOption(ZMQ_LINGER, 0);
  socket->SetOption(ZMQ_MAXMSGSIZE, kMaxFrameBytes);
  if (*curve) socket->Secure(**curve);
  socket->Subscribe(prefix);
  for (const std::string& endpoint : options.endpoints) {
    if (endpoint.find('[') != std::string::npos) socket->SetOption(ZMQ_IPV6, 1);
    if (const Status connected = socket->Connect(endpoint); !connected.ok()) {
      // kUnavailable gives exit code 1, not 2 (usage error).
      return Status(StatusCode::kUnavailable,
                    "cannot follow " + endpoint + ": " + connected.message());
    }
  }
  return socket;
}

}  // namespace

int RunTail(const TailOptions& options) {
  InstallStopSignals();
  Tail tail(options);
  if (const Status opened = tail.Open(); !opened.ok()) return Fail(opened);
  auto socket = OpenSocket(options, tail.Prefix());
  if (!socket.ok()) return Fail(socket.status());
  int64_t counted = 0;
  stream::Multipart received;
  while (StopSignal() == 0 && (options.count == 0 || counted < options.count)) {
    tail.Repaint(false);
    if (const int code = CheckOutput(); code != 0) return code;
    zmq_pollitem_t item{socket->get(), 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, kWaitMs) <= 0) continue;
    Message message;
    if (!ReceiveMessage(*socket, received, message)) continue;
    const auto counts = tail.Process(message);
    if (!counts.ok()) return Fail(counts.status());
    counted += *counts ? 1 : 0;
  }
  tail.Repaint(true);
  return StopSignal() == 0 ? CheckOutput() : 128 + StopSignal();
}

}  // namespace kvcast::tools
