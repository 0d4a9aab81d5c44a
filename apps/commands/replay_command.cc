// `kvcast replay`: publishes a capture again, with its topics, sequence numbers and payloads.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <thread>
#include <zmq.hpp>

#include "apps/commands/commands.h"
#include "apps/support/capture.h"
#include "apps/support/stop.h"

namespace kvcast::tools {
namespace {

using Clock = std::chrono::steady_clock;

// False: a stop signal arrived.
bool SleepUntil(Clock::time_point due) {
  while (StopSignal() == 0 && Clock::now() < due) {
    const auto left = due - Clock::now();
    std::this_thread::sleep_for(std::min<Clock::duration>(left, std::chrono::milliseconds(50)));
  }
  return StopSignal() == 0;
}

void Send(zmq::socket_t& socket, const CapturedMessage& message) {
  uint8_t seq[8];
  for (int i = 0; i < 8; ++i) seq[i] = static_cast<uint8_t>(message.seq >> (56 - 8 * i));
  socket.send(zmq::buffer(message.topic), zmq::send_flags::sndmore);
  socket.send(zmq::buffer(seq, sizeof(seq)), zmq::send_flags::sndmore);
  socket.send(zmq::buffer(message.payload), zmq::send_flags::none);
}

}  // namespace

int RunReplay(const ReplayOptions& options) {
  InstallStopSignals();
  auto capture = CaptureReader::Open(options.file);
  if (!capture.ok()) return Fail(capture.status());
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::pub);
  socket.set(zmq::sockopt::linger, 1000);
  socket.set(zmq::sockopt::sndhwm, 0);
  try {
    socket.bind(options.endpoint);
  } catch (const zmq::error_t& error) {
    return Fail("cannot publish on " + options.endpoint + ": " + error.what());
  }
  std::fprintf(stderr, "kvcast replay: events on %s\n",
               socket.get(zmq::sockopt::last_endpoint).c_str());
  const auto begin = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(options.delay));
  if (!SleepUntil(begin)) return 128 + StopSignal();
  int64_t sent = 0;
  double first = 0;
  while (auto message = capture->Next()) {
    if (sent == 0) first = message->time;
    if (options.speed > 0) {
      const std::chrono::duration<double> offset((message->time - first) / options.speed);
      if (!SleepUntil(begin + std::chrono::duration_cast<Clock::duration>(offset))) break;
    }
    if (StopSignal() != 0) break;
    Send(socket, *message);
    ++sent;
  }
  std::printf("%lld messages\n", static_cast<long long>(sent));
  return StopSignal() == 0 ? 0 : 128 + StopSignal();
}

}  // namespace kvcast::tools
