// ReplayServer: the ROUTER socket of a publisher and the thread that answers replay requests on it.
// ReplayScheduler chooses the replies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "kvcast/stream/publisher.h"
#include "src/stream/net/gate.h"
#include "src/stream/net/socket.h"
#include "src/stream/net/waker.h"
#include "src/stream/publish/replay_scheduler.h"
#include "src/stream/publish/reply_channel.h"

namespace kvcast::stream {

struct ReplayServerConfig {
  std::string topic;
  ReplayLayout layout = ReplayLayout::kTopicSeqPayload;
  ReplayRate rate;
  std::function<int64_t()> now_us;  // monotonic; called on the server's thread
  // True: requests get no answer. Called on the server's thread. Empty: each request gets an
  // answer.
  std::function<bool()> silent;
  // The guard of the socket; nullptr: every client may make every request. Must outlive the server.
  Guard* guard = nullptr;
  // The limit of the socket; nullptr: none. Must outlive the server.
  ReceiveLimit* limit = nullptr;
};

class ReplayServer final : private ReplyChannel {
 public:
  // Starts the thread. `router` must be bound, with ZMQ_ROUTER_MANDATORY and no high-water mark.
  // `ring` and `state` (nullptr: no KVX1) must outlive the server. Throws std::system_error if the
  // thread cannot start.
  ReplayServer(Socket router, std::shared_ptr<Waker> waker, const ReplayServerConfig& config,
               ReplayRing& ring, PublisherState* state = nullptr);
  // Stops immediately: replies that were not sent are lost.
  ~ReplayServer() override;

  const ReplayCounters& counters() const { return scheduler_.counters(); }
  // Number of requests that were denied because the client does not have the role. They count as
  // requests, too: the scheduler answers them like requests without batches.
  uint64_t denied() const { return denied_; }

 private:
  void Run();
  void WaitForWork();
  void ReceiveRequests();
  bool MayRequest(Frame start) const;
  bool Send(const std::string& client, uint64_t seq, Payload payload,
            std::shared_ptr<void> charge) override;

  const ReplayServerConfig config_;
  Socket router_;
  const std::shared_ptr<Waker> waker_;
  ReplayScheduler scheduler_;
  Multipart message_;
  std::atomic<uint64_t> denied_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace kvcast::stream
