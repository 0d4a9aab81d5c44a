// ReplayServer: the thread that owns the ROUTER socket and answers replay requests from the ring.
//
// Clients are served in turns of kTurnBatches, so that none waits for another. One that does not
// read is paused at its credit (see replay_credit.h) and goes on when it reads; what left the ring
// meanwhile is missing from its replies. One that asks for more than its rate is paused, too.
// Neither is told: an END in the place of an answer would say that nothing is held.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "src/stream/replay_credit.h"
#include "src/stream/replay_rate.h"
#include "src/stream/replay_responder.h"
#include "src/stream/replay_ring.h"
#include "src/stream/socket.h"

namespace kvcast::stream {

struct ReplayCounters {
  std::atomic<uint64_t> requests{0};
  std::atomic<uint64_t> batches{0};
  std::atomic<uint64_t> delays{0};
  std::atomic<uint64_t> rejects{0};
  std::atomic<uint64_t> dropped{0};
};

class ReplayServer {
 public:
  static constexpr size_t kTurnBatches = 256;
  static constexpr size_t kMaxClients = 64;            // beyond: the longest stalled one is dropped
  static constexpr size_t kMaxRequestsPerClient = 16;  // waiting; beyond: the new one is dropped

  // Starts the thread. `router` is bound, with ZMQ_ROUTER_MANDATORY and no high-water mark; `ring`
  // and `state` (nullptr: no KVX1) must outlive the server. Throws std::system_error if no thread
  // can start.
  ReplayServer(Socket router, std::shared_ptr<Waker> waker, std::string topic, ReplayLayout layout,
               ReplayRing& ring, PublisherState* state = nullptr, const ReplayRate& rate = {});
  // Ends at once: replies that were not sent are lost.
  ~ReplayServer();

  const ReplayCounters& counters() const { return counters_; }

 private:
  struct Client {
    std::string identity;
    std::shared_ptr<ReplayCredit> credit;
    TokenBucket request_rate;
    TokenBucket byte_rate;
    std::deque<std::vector<uint8_t>> requests = {};  // their start frames; served front first
    std::optional<Answer> answer = std::nullopt;     // to the one in front
    bool paused = false;
    int64_t ready_us = 0;  // not served before

    bool waiting() const { return !paused && !requests.empty(); }
    bool runnable(int64_t now_us) const { return waiting() && now_us >= ready_us; }
  };
  using Clients = std::list<Client>;
  enum class Turn : uint8_t { kServed, kGone };

  void Run();
  void WaitForWork();
  int64_t WaitMs() const;
  void ReceiveRequests();
  void AddRequest(Frame identity, Frame start);
  Client& FindOrAddClient(Frame identity);
  void MakeRoom();
  void ServeClients();
  Turn ServeTurn(Client& client, int64_t now_us);
  bool MayGoOn(TokenBucket& rate, Client& client, int64_t now_us);
  bool HasCredit(Client& client);
  SendResult SendBatch(Client& client, const RingEntry& entry);
  SendResult SendEnd(Client& client, const Answer& answer);
  SendResult SendReply(Client& client, Frame topic, uint64_t seq, Payload payload);
  void Drop(Clients::iterator client);

  Socket router_;
  const std::shared_ptr<Waker> waker_;
  const std::string topic_;
  const ReplayLayout layout_;
  const ReplayRate rate_;
  ReplayResponder responder_;

  Clients clients_;  // the one that was served last is at the back
  std::vector<RingEntry> slice_;
  Multipart message_;

  ReplayCounters counters_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace kvcast::stream
