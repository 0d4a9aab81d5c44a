// `kvcast tail`: follows event streams. Prints one header line per batch and one line per event, or
// one JSON object per batch, or once per second the counts by topic.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <zmq.hpp>

#include "apps/commands/commands.h"
#include "apps/commands/tail_filter.h"
#include "apps/commands/tail_stats.h"
#include "apps/support/capture.h"
#include "apps/support/event_json.h"
#include "apps/support/stop.h"
#include "kvcast/wire/wire.h"
#include "router/service/relay/relay.h"

namespace kvcast::tools {
namespace {

using Message = CapturedMessage;

// False: there is no message, or it is not a live message of three frames.
bool ReceiveMessage(zmq::socket_t& socket, Message& message) {
  std::vector<std::string> frames;
  bool more = true;
  while (more) {
    zmq::message_t frame;
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) return false;
    frames.push_back(frame.to_string());
    more = socket.get(zmq::sockopt::rcvmore) != 0;
  }
  if (frames.size() != 3 || frames[1].size() != 8) return false;
  message.seq = 0;
  for (const char byte : frames[1]) message.seq = message.seq << 8 | static_cast<uint8_t>(byte);
  message.topic = std::move(frames[0]);
  message.payload = std::move(frames[2]);
  return true;
}

void PrintJson(const Message& message, const EventBatch& batch, const DecodeCounts& counts) {
  nlohmann::json line = BatchToJson(batch);
  line["topic"] = message.topic;
  line["seq"] = message.seq;
  if (counts.rejected_total() > 0) line["rejected"] = counts.rejected_total();
  std::printf("%s\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

void PrintEvents(const Message& message, const EventBatch& batch, const DecodeCounts& counts) {
  std::printf("%-20s seq %-8llu rank %-4s %zu events\n", message.topic.c_str(),
              static_cast<unsigned long long>(message.seq),
              batch.data_parallel_rank ? std::to_string(*batch.data_parallel_rank).c_str() : "-",
              batch.events.size());
  for (const Event& event : batch.events) std::printf("  %s\n", DescribeEvent(event).c_str());
  if (counts.rejected_total() > 0) {
    std::printf("  %llu events could not be decoded\n",
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
  Result<bool> Take(Message& message);
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

Result<bool> Tail::Take(Message& message) {
  EventBatch batch;
  DecodeCounts counts;
  const std::span<const uint8_t> payload(reinterpret_cast<const uint8_t*>(message.payload.data()),
                                         message.payload.size());
  if (const Status status = DecodeBatch(payload, WireLimits{}, batch, counts); !status.ok()) {
    std::fprintf(stderr, "kvcast: seq %llu: %s\n", static_cast<unsigned long long>(message.seq),
                 status.message().c_str());
    return true;
  }
  if (!filter_.Keep(message.topic, batch)) return false;
  if (options_.redact) router::Redact(batch);
  if (const Status status = Record(message, batch); !status.ok()) return status;
  if (options_.stats) {
    stats_.Note(message.topic, message.seq, batch, message.payload.size());
    return true;
  }
  options_.json ? PrintJson(message, batch, counts) : PrintEvents(message, batch, counts);
  std::fflush(stdout);
  return true;
}

// Records the received payload. With a filter or with redaction, encodes the remaining batch and
// records this payload.
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

}  // namespace

int RunTail(const TailOptions& options) {
  InstallStopSignals();
  Tail tail(options);
  if (const Status opened = tail.Open(); !opened.ok()) return Fail(opened);
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::sub);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::subscribe, tail.Prefix());
  for (const std::string& endpoint : options.endpoints) {
    try {
      socket.connect(endpoint);
    } catch (const zmq::error_t& error) {
      return Fail("cannot follow " + endpoint + ": " + error.what());
    }
  }
  int64_t taken = 0;
  try {
    while (StopSignal() == 0 && (options.count == 0 || taken < options.count)) {
      tail.Repaint(false);
      zmq::pollitem_t item{socket.handle(), 0, ZMQ_POLLIN, 0};
      if (zmq::poll(&item, 1, std::chrono::milliseconds(200)) == 0) continue;
      Message message;
      if (!ReceiveMessage(socket, message)) continue;
      const auto counts = tail.Take(message);
      if (!counts.ok()) return Fail(counts.status());
      taken += *counts ? 1 : 0;
    }
  } catch (const zmq::error_t& error) {
    if (StopSignal() == 0) return Fail(error.what());
  }
  tail.Repaint(true);
  return StopSignal() == 0 ? 0 : 128 + StopSignal();
}

}  // namespace kvcast::tools
