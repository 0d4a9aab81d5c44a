// `kvcast replay`: publishes a capture again, with its topics, sequence numbers and payloads.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "apps/commands/commands.h"
#include "apps/support/capture.h"
#include "apps/support/stop.h"
#include "src/stream/net/gate.h"
#include "src/stream/net/notice_log.h"
#include "src/stream/net/receive_limit.h"
#include "src/stream/net/socket.h"

namespace kvcast::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The PUB socket and its limit. With CURVE, the socket has a guard.
class Output {
 public:
  Status Open(const ReplayOptions& options, Logger& log);
  std::string endpoint() const { return socket_.last_endpoint(); }
  void Send(const CapturedMessage& message);
  // Also disconnects revoked clients. False: a signal stops the program.
  bool SleepUntil(Clock::time_point due);

 private:
  // The limit and the guard must be destroyed after the socket is closed.
  stream::ReceiveLimit limit_{stream::ReceiveLimit::kSubscriberBytes};
  std::unique_ptr<stream::Guard> guard_;
  stream::Socket socket_;
};

bool Output::SleepUntil(Clock::time_point due) {
  while (true) {
    if (guard_ != nullptr) guard_->HandleWake(socket_);
    if (StopSignal() != 0) return false;
    const Clock::duration left = due - Clock::now();
    if (left <= Clock::duration::zero()) return true;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, std::chrono::milliseconds(50)));
  }
}

stream::Frame FrameOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Status Output::Open(const ReplayOptions& options, Logger& log) {
  auto curve = LoadCurveServer(options.curve, {options.endpoint});
  if (!curve.ok()) return curve.status();
  if (*curve) (*curve)->on_notice = stream::LogNotices(log, "replay");
  const auto context = stream::Context::Create();
  auto socket = stream::Socket::Create(context, ZMQ_PUB);
  if (!socket.ok()) return socket.status();
  socket_ = std::move(socket).value();
  socket_.SetOption(ZMQ_LINGER, 1000);
  socket_.SetOption(ZMQ_SNDHWM, 0);
  socket_.SetOption(ZMQ_MAXMSGSIZE, int64_t{4096});  // a subscription has a few bytes
  if (*curve) {
    auto guard = stream::Guard::Create(
        context, socket_,
        {.server = **curve, .roles = {CurveRole::kSubscribe}, .limit = &limit_, .wake = [] {}});
    if (!guard.ok()) return guard.status();
    guard_ = std::move(guard).value();
  } else if (const Status monitored = limit_.Monitor(socket_); !monitored.ok()) {
    return monitored;
  }
  if (const Status bound = socket_.Bind(options.endpoint); !bound.ok()) {
    return {StatusCode::kUnavailable,
            "cannot publish on " + options.endpoint + ": " + bound.message()};
  }
  return Status();
}

void Output::Send(const CapturedMessage& message) {
  socket_.Send(FrameOf(message.topic), /*more=*/true);
  socket_.Send(stream::EncodeSeq(message.seq), /*more=*/true);
  socket_.Send(FrameOf(message.payload), /*more=*/false);
}

}  // namespace

int RunReplay(const ReplayOptions& options) {
  InstallStopSignals();
  auto capture = CaptureReader::Open(options.file);
  if (!capture.ok()) return Fail(capture.status());
  const auto log = MakeStderrLog(options.log);
  Output output;
  if (const Status opened = output.Open(options, *log); !opened.ok()) return Fail(opened);
  log->Write(log_events::kStreamListening, "",
             {{"stream", "replay"},
              {"address", output.endpoint()},
              {"encrypted", !options.curve.key.empty()}});
  const auto begin = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(options.delay));
  if (!output.SleepUntil(begin)) return 128 + StopSignal();
  int64_t sent = 0;
  double first = 0;
  while (auto message = capture->Next()) {
    if (sent == 0) first = message->time;
    const int64_t offset =
        options.speed > 0 ? ReplayOffsetNs(first, message->time, options.speed) : 0;
    if (!output.SleepUntil(begin + std::chrono::nanoseconds(offset))) break;
    output.Send(*message);
    ++sent;
  }
  std::printf("%lld messages\n", static_cast<long long>(sent));
  return StopSignal() == 0 ? 0 : 128 + StopSignal();
}

}  // namespace kvcast::tools
