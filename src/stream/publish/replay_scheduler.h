// ReplayScheduler: which replay client is sent which replies next. No socket, no thread, no clock:
// ReplayServer and the simulation run it.
//
// Each client gets at most `turn_replies` at a time, so that none waits for another. A client that
// does not read is paused at its credit (see replay_credit.h) and continues when it reads; batches
// that left the ring meanwhile are missing from its replies. A client that asks for more than its
// rate is paused, too. Neither is told: an END in the place of an answer would say that nothing is
// held.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/stream/publish/replay_credit.h"
#include "src/stream/publish/replay_rate.h"
#include "src/stream/publish/replay_responder.h"
#include "src/stream/publish/replay_ring.h"
#include "src/stream/publish/reply_channel.h"

namespace kvcast::stream {

struct ReplayCounters {
  std::atomic<uint64_t> requests{0};
  std::atomic<uint64_t> batches{0};
  std::atomic<uint64_t> delays{0};
  std::atomic<uint64_t> rejects{0};
  std::atomic<uint64_t> dropped{0};
};

struct ReplayLimits {
  ReplayRate rate;
  CreditLimits credit;
  size_t turn_replies = 256;  // > 0
};

// Thread-compatible; counters() may be read from any thread.
class ReplayScheduler {
 public:
  static constexpr size_t kMaxClients = 64;            // beyond: the longest stalled one is dropped
  static constexpr size_t kMaxRequestsPerClient = 16;  // waiting; beyond: the new one is dropped

  // `ring`, `state` (nullptr: no KVX1) and `channel` must outlive the scheduler. `wake` is called
  // on any thread, as long as a charge lives, when a paused client has credit again: Resume is to
  // be called then.
  ReplayScheduler(const ReplayLimits& limits, ReplayRing& ring, PublisherState* state,
                  ReplyChannel& channel, std::function<void()> wake);

  // `start`: the request's last frame.
  void AddRequest(Frame client, Frame start);
  // A request that cannot be parsed gets no answer.
  void CountReject() { ++counters_.rejects; }
  // Clients that were paused for credit are tried again.
  void Resume();
  // Gives each client that can be served one turn. `now_us`: any monotonic time.
  void Serve(int64_t now_us);
  // Milliseconds until Serve has something to do; -1: not before AddRequest or Resume.
  int64_t WaitMs(int64_t now_us) const;

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

  Client& FindOrAddClient(Frame identity);
  void MakeRoom();
  Turn ServeTurn(Client& client, int64_t now_us);
  bool MayGoOn(TokenBucket& rate, Client& client, int64_t now_us);
  bool HasCredit(Client& client);
  bool Send(Client& client, uint64_t seq, Payload payload);
  void Drop(Clients::iterator client);

  const ReplayLimits limits_;
  ReplyChannel& channel_;
  const std::function<void()> wake_;
  ReplayResponder responder_;
  Clients clients_;  // the one that was served last is at the back
  std::vector<RingEntry> slice_;
  ReplayCounters counters_;
};

}  // namespace kvcast::stream
