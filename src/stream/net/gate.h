// Gate: admits the CURVE clients of one ZeroMQ context, and counts the connections that fail.
// Guard: the part of the gate that belongs to one socket.
//
// libzmq sends the gate a request for each client (ZAP, RFC 27). The gate answers from the
// AccessList of the socket, and reads the lists again every AccessList::kRefreshMs. libzmq cannot
// end a single connection of a PUB or ROUTER socket. So if a client loses its role, all connections
// of the socket are ended: the gate wakes the owner of the socket, and the owner renews the
// endpoint. The other clients connect again. libzmq ends a connection only in a later call on the
// socket, so the gate also wakes the owner when commands of libzmq wait in the socket.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kvcast/stream/curve.h"
#include "src/base/descriptor.h"
#include "src/base/mutex.h"
#include "src/stream/net/poller.h"
#include "src/stream/net/receive_limit.h"
#include "src/stream/net/socket.h"
#include "src/stream/net/waker.h"

namespace kvcast::stream {

// Thread-safe.
class Guard {
 public:
  struct Config {
    CurveServer server;
    std::vector<CurveRole> roles;  // a client needs at least one of these roles
    // The socket connects to a client that binds. libzmq gives up such a connection after some
    // failed handshakes, so the connection must be renewed after a failure.
    bool connects = false;
    // Gets the connections of the socket, and must outlive the guard. nullptr: no limit.
    ReceiveLimit* limit = nullptr;
    // Called repeatedly until the owner has called HandleWake, on the gate's thread, with the
    // gate's lock held. It must not block.
    std::function<void()> wake;
  };

  // Makes `socket` a CURVE server. Must be called before the socket is bound or connected. The
  // guard must be destroyed after the socket is closed. Throws std::system_error if the gate's
  // thread cannot start.
  static Result<std::unique_ptr<Guard>> Create(const std::shared_ptr<Context>& context,
                                               Socket& socket, Config config);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Ends all connections of the socket if a renewal is needed, for example because a client has
  // lost its role. Lets libzmq finish ended connections. The owner of the socket must call this
  // function on its thread after each `wake`.
  void HandleWake(Socket& socket) {
    if (needs_owner()) Handle(socket);
  }
  const AccessList& clients() const { return *config_.server.clients; }
  RefusedConnections refused() const;

 private:
  friend class Gate;
  Guard(std::shared_ptr<Context> context, std::shared_ptr<Gate> gate, Config config,
        Socket monitor);
  bool needs_owner() const {
    return needs_renewal_.load(std::memory_order_relaxed) ||
           has_commands_->load(std::memory_order_relaxed);
  }
  void EndWatches();
  void Handle(Socket& socket);
  void Renew(Socket& socket);
  bool Allows(std::string_view key) const;
  void OnEvent(const MonitorEvent& event);
  void Count(const MonitorEvent& event);
  void CheckAdmitted();
  void Refuse(std::string_view peer, std::string_view reason) const;
  void Notify(CurveNotice notice) const;

  const std::shared_ptr<Context> context_;
  std::shared_ptr<Gate> gate_;
  const Config config_;
  std::string endpoint_;  // used by the owner's thread; empty before the first renewal
  Socket monitor_;        // used by the gate's thread
  std::set<std::string, std::less<>> admitted_;  // keys; used by the gate's thread
  bool failed_ = false;                          // a handshake failed; used by the gate's thread
  Poller::Watch watch_;
  std::atomic<bool> needs_renewal_{false};
  // A duplicate of the socket's descriptor, because the socket is closed before its guard.
  Descriptor commands_;
  // The socket has commands of libzmq, for example the end of a connection. An owner that only
  // sends would leave these commands waiting until the next message. The gate's thread may set the
  // flag after the guard has ended; see Gate::Retire.
  const std::shared_ptr<std::atomic<bool>> has_commands_ =
      std::make_shared<std::atomic<bool>>(true);
  Poller::Watch commands_watch_;
  std::atomic<uint64_t> no_key_{0};
  std::atomic<uint64_t> wrong_server_key_{0};
  std::atomic<uint64_t> not_allowed_{0};
  std::atomic<uint64_t> broken_{0};
};

// Thread-safe. The gate exists while a Guard holds it.
class Gate {
 public:
  // The gate of the context. `slot` is the slot of the context.
  static Result<std::shared_ptr<Gate>> Of(const std::shared_ptr<Context>& context,
                                          Context::GateSlot& slot) KV_REQUIRES(slot.mutex);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

 private:
  friend class Guard;
  Gate(std::shared_ptr<Context> context, Socket zap, std::shared_ptr<Waker> waker,
       std::unique_ptr<Poller> poller);
  static Result<std::shared_ptr<Gate>> Start(const std::shared_ptr<Context>& context);
  std::string NextDomain();
  void Add(const std::string& domain, Guard& guard);
  void Remove(const Guard& guard);
  // Keeps a flag whose watch has ended until the gate's thread cannot set it any more.
  void Retire(std::shared_ptr<std::atomic<bool>> flag);

  void Run();
  void FreeRetired();
  int64_t WaitMs();
  void AnswerRequests();
  void Answer(Frames request);
  std::string AdmittedKey(Frames request) KV_REQUIRES(mutex_);
  void CountEvents();
  void RefreshLists();
  void WakeOwners();

  const std::shared_ptr<Context> context_;
  Socket zap_;  // used by the thread
  const std::shared_ptr<Waker> waker_;
  const std::unique_ptr<Poller> poller_;
  std::atomic<bool> ready_{true};  // set by the poller
  Poller::Watch zap_watch_;
  Poller::Watch waker_watch_;
  int64_t refresh_due_ms_ = 0;  // when to read the lists again
  std::atomic<bool> stopping_{false};

  Mutex mutex_;
  uint64_t domains_ KV_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Guard*, std::less<>> guards_ KV_GUARDED_BY(mutex_);  // by domain
  std::vector<std::shared_ptr<std::atomic<bool>>> retired_ KV_GUARDED_BY(mutex_);
  std::thread thread_;  // last: the thread uses the other members
};

}  // namespace kvcast::stream
