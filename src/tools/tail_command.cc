// `kvcast tail`: follows event streams, one line (or one JSON object) a batch.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>
#include <zmq.hpp>

#include "kvcast/wire.h"
#include "src/tools/commands.h"
#include "src/tools/event_json.h"
#include "src/tools/stop.h"

namespace kvcast::tools {
namespace {

struct Message {
  std::string topic;
  uint64_t seq = 0;
  std::string payload;
};

// False: not a live message of three frames.
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

void Print(const Message& message, bool json) {
  EventBatch batch;
  DecodeCounts counts;
  const std::span<const uint8_t> payload(reinterpret_cast<const uint8_t*>(message.payload.data()),
                                         message.payload.size());
  const Status status = DecodeBatch(payload, WireLimits{}, batch, counts);
  if (!status.ok()) {
    std::fprintf(stderr, "kvcast: seq %llu: %s\n", static_cast<unsigned long long>(message.seq),
                 status.message().c_str());
    return;
  }
  json ? PrintJson(message, batch, counts) : PrintEvents(message, batch, counts);
  std::fflush(stdout);
}

}  // namespace

int RunTail(const TailOptions& options) {
  InstallStopSignals();
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::sub);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::subscribe, options.topic);
  for (const std::string& endpoint : options.endpoints) {
    try {
      socket.connect(endpoint);
    } catch (const zmq::error_t& error) {
      return Fail("cannot follow " + endpoint + ": " + error.what());
    }
  }
  int64_t printed = 0;
  try {
    while (StopSignal() == 0 && (options.count == 0 || printed < options.count)) {
      zmq::pollitem_t item{socket.handle(), 0, ZMQ_POLLIN, 0};
      if (zmq::poll(&item, 1, std::chrono::milliseconds(200)) == 0) continue;
      Message message;
      if (!ReceiveMessage(socket, message)) continue;
      Print(message, options.json);
      ++printed;
    }
  } catch (const zmq::error_t& error) {
    if (StopSignal() == 0) return Fail(error.what());
  }
  return StopSignal() == 0 ? 0 : 128 + StopSignal();
}

}  // namespace kvcast::tools
