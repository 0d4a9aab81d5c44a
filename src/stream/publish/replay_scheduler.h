// ReplayScheduler: decides which replay client gets which replies next. It has no socket, no thread
// and no clock. ReplayServer and the simulation use the same scheduler.
//
// Each client gets at most `turn_replies` replies per turn, so that no client waits long for
// another client. A client that does not read is paused when its credit is used up (see
// replay_credit.h), and continues when it reads. Batches that left the ring in the meantime are
// missing from its replies. A client that exceeds its rate is paused too. A paused client is not
// notified: an END in place of an answer would mean that the ring holds no batches.
//
// The connection of a dropped client stays open, and the client may not have read its replies yet.
// So the scheduler keeps the credit and the rates of a dropped client for its next request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
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
  std::atomic<uint64_t> snapshots{0};  // snapshots that were made; clients may share one
};

struct ReplayLimits {
  ReplayRate rate;
  CreditLimits credit;
  size_t turn_replies = 256;  // > 0
};

// Thread-compatible; counters() may be read from any thread.
class ReplayScheduler {
 public:
  // Maximum number of clients. If there are more clients, a client without requests is dropped. If
  // all clients have requests, the client that was served least recently is dropped.
  static constexpr size_t kMaxClients = 64;
  // Maximum number of waiting requests per client. Further requests are dropped.
  static constexpr size_t kMaxRequestsPerClient = 16;
  // Maximum number of snapshots in memory. Further requests for snapshots wait in a queue. A
  // request enters the queue when it arrives and the answer to the client's previous request has
  // ended. Requests that wait for their rate or for credit are skipped.
  static constexpr size_t kMaxSnapshots = 2;
  // If a request waits for a snapshot, and the oldest snapshot was written longer ago than this,
  // the clients that still read the oldest snapshot are dropped.
  static constexpr int64_t kSnapshotHoldUs = 10'000'000;

  // `ring`, `state` (nullptr: no KVX1) and `channel` must outlive the scheduler. `wake` is called
  // on any thread when a paused client has credit again. The caller must then call Resume. `wake`
  // may be called as long as a charge exists.
  ReplayScheduler(const ReplayLimits& limits, ReplayRing& ring, PublisherState* state,
                  ReplyChannel& channel, std::function<void()> wake);

  // `start`: the last frame of the request.
  void AddRequest(Frame client, Frame start);
  // Counts a request that cannot be parsed. It gets no answer.
  void CountReject() { ++counters_.rejects; }
  // Ends the pauses of the clients that had no credit. Serve then tries them again.
  void Resume();
  // Does one step of the writing of a snapshot, and gives each client that can be served one turn:
  // first the clients with a request for a status, then the other clients. At most one snapshot is
  // made, so that the caller can take new requests before the next snapshot. `now_us`: any
  // monotonic time.
  void Serve(int64_t now_us);
  // Milliseconds until the next call of Serve is needed; -1: not before AddRequest or Resume.
  int64_t WaitMs(int64_t now_us) const;

  const ReplayCounters& counters() const { return counters_; }

 private:
  struct Request {
    std::vector<uint8_t> start;  // the last frame
    uint64_t arrival = 0;        // number of requests that arrived before this request
  };
  // The limits of one connection.
  struct Budget {
    std::shared_ptr<ReplayCredit> credit;
    TokenBucket request_rate;
    TokenBucket byte_rate;

    // True: all replies have left the process, and the rates are as those of a new client.
    bool IsUnused(int64_t now_us) const {
      return credit->idle() && request_rate.IsFull(now_us) && byte_rate.IsFull(now_us);
    }
  };
  struct Client {
    std::string identity;
    Budget budget;
    std::deque<Request> requests = {};            // the front is served first
    std::optional<Answer> answer = std::nullopt;  // answer to requests.front()
    bool paused = false;
    int64_t ready_us = 0;   // the client is not served before this time
    uint64_t answered = 0;  // number of requests that had arrived when the latest answer ended

    // The place of requests.front() in the queue for a snapshot.
    uint64_t place() const { return std::max(requests.front().arrival, answered); }
    bool waiting() const { return !paused && !requests.empty(); }
    bool runnable(int64_t now_us) const { return waiting() && now_us >= ready_us; }
  };
  using Clients = std::list<Client>;
  enum class Turn : uint8_t { kServed, kGone };

  Client& FindOrAddClient(Frame identity);
  Budget TakeBudget(const std::string& identity);
  void ForgetBudgets(int64_t now_us);
  void MakeRoom();
  int64_t ReadyUs(const Client& client) const;
  void ServeClients(bool status, int64_t now_us);
  Turn ServeTurn(Client& client, int64_t now_us);
  bool MayBegin(Client& client, int64_t now_us);
  void Begin(Client& client);
  bool NeedsSnapshot(const Client& client) const;
  Client* FirstInQueue(int64_t now_us);
  void MakeSnapshot(int64_t now_us);
  bool HasRoomForSnapshot();
  void WriteSnapshots(int64_t now_us);
  void DropSlowReaders(int64_t now_us);
  bool MayGoOn(TokenBucket& rate, Client& client, int64_t now_us);
  bool HasCredit(Client& client);
  bool Send(Client& client, uint64_t seq, Payload payload);
  void Drop(Clients::iterator client);

  const ReplayLimits limits_;
  ReplyChannel& channel_;
  const std::function<void()> wake_;
  ReplayResponder responder_;
  Clients clients_;                        // the most recently served client is at the back
  std::map<std::string, Budget> dropped_;  // by identity: budgets of dropped clients
  size_t forget_at_ = kMaxClients;         // size of dropped_ at which unused budgets are forgotten
  std::vector<RingEntry> slice_;
  struct Held {
    std::weak_ptr<StateSnapshot> snapshot;
    std::optional<int64_t> written_us;  // nullopt: some parts are not written
  };
  std::vector<Held> held_;       // snapshots that clients still read, the oldest first
  bool snapshot_waits_ = false;  // the first request in the queue waits because of kMaxSnapshots
  ReplayCounters counters_;
};

}  // namespace kvcast::stream
