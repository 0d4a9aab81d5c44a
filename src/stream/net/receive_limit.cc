// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/receive_limit.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "src/base/batch_scheduling.h"
#include "src/base/clock.h"
#include "src/base/weak_singleton.h"

namespace kvcast::stream {
namespace {

constexpr int64_t kCheckMs = 50;

// Drops the unread bytes, and resets the connection. After shutdown() libzmq would still read all
// bytes that the peer sends. The function connect() of libc is not called, because ThreadSanitizer
// takes it for the creation of the descriptor, and reports that libzmq uses the descriptor.
void Reset(int descriptor) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  syscall(SYS_connect, descriptor, &none, sizeof(none));
}

// 0: not a TCP endpoint.
uint16_t PortOf(std::string_view endpoint) {
  const size_t colon = endpoint.rfind(':');
  uint16_t port = 0;
  if (!endpoint.starts_with("tcp://")) return 0;
  std::from_chars(endpoint.data() + colon + 1, endpoint.data() + endpoint.size(), port);
  return port;
}

// True: the descriptor belongs to a TCP connection with the port of the event.
bool IsOf(int descriptor, const MonitorEvent& event) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool bound = event.event == ZMQ_EVENT_ACCEPTED;
  if ((bound ? getsockname : getpeername)(descriptor, any, &size) != 0) return false;
  const uint16_t port = PortOf(event.endpoint);
  if (address.ss_family == AF_INET) {
    return port == ntohs(reinterpret_cast<const sockaddr_in*>(any)->sin_port);
  }
  return address.ss_family == AF_INET6 &&
         port == ntohs(reinterpret_cast<const sockaddr_in6*>(any)->sin6_port);
}

}  // namespace

// The thread of all limits of this process.
class ReceiveLimitThread {
 public:
  static std::shared_ptr<ReceiveLimitThread> Shared() {
    static WeakSingleton<ReceiveLimitThread> shared;
    return shared.Get([] { return std::make_shared<ReceiveLimitThread>(); },
                      [](const ReceiveLimitThread&) { return true; });
  }

  ReceiveLimitThread() : thread_([this] { Run(); }) {}
  ~ReceiveLimitThread() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.NotifyOne();
    thread_.join();
  }

  void Add(ReceiveLimit& limit) {
    MutexLock lock(mutex_);
    limits_.push_back(&limit);
  }
  void Remove(ReceiveLimit& limit) {
    MutexLock lock(mutex_);
    std::erase(limits_, &limit);
  }

 private:
  void Run() {
    SetBatchScheduling();
    MutexLock lock(mutex_);
    while (!stopping_) {
      const int64_t now_ms = SteadyMs();
      for (ReceiveLimit* const limit : limits_) limit->Check(now_ms);
      const int64_t until_us = (now_ms + kCheckMs) * 1000;
      while (!stopping_ && wake_.WaitUntil(mutex_, until_us)) {
      }
    }
  }

  Mutex mutex_;
  CondVar wake_;
  std::vector<ReceiveLimit*> limits_ KV_GUARDED_BY(mutex_);
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: the thread uses the other members
};

ReceiveLimit::ReceiveLimit(uint64_t max_bytes)
    : max_bytes_(max_bytes), thread_(ReceiveLimitThread::Shared()) {
  thread_->Add(*this);
}

ReceiveLimit::~ReceiveLimit() { thread_->Remove(*this); }

Status ReceiveLimit::Monitor(Socket& socket) {
  Result<Socket> monitor = socket.Monitor(kEvents);
  if (!monitor.ok()) return monitor.status();
  MutexLock lock(mutex_);
  monitor_ = std::move(monitor).value();
  return Status();
}

// The connection may be closed already, and another connection of this process may have its
// descriptor.
void ReceiveLimit::OnEvent(const MonitorEvent& event) {
  const auto descriptor = static_cast<int>(event.value);
  if (!IsOf(descriptor, event)) return;
  MutexLock lock(mutex_);
  UnfinishedBytes connection(descriptor, SteadyMs());
  if (early_.erase(descriptor) > 0) connection.NoteMessage();
  if (UnfinishedBytes* const known = Find(descriptor); known != nullptr) {
    *known = connection;
  } else {
    connections_.push_back(connection);
  }
}

void ReceiveLimit::NoteMessage(int connection) {
  MutexLock lock(mutex_);
  if (UnfinishedBytes* const known = Find(connection); known != nullptr) {
    known->NoteMessage();
  } else {
    early_.insert(connection);
  }
}

UnfinishedBytes* ReceiveLimit::Find(int descriptor) {
  const auto known = std::ranges::find(connections_, descriptor, &UnfinishedBytes::descriptor);
  return known == connections_.end() ? nullptr : &*known;
}

// After a reset libzmq finds the end of the connection, as if the peer had reset it.
void ReceiveLimit::Check(int64_t now_ms) {
  for (;;) {
    std::optional<MonitorEvent> event;
    {
      MutexLock lock(mutex_);
      if (monitor_.is_open()) event = ReceiveMonitorEvent(monitor_);
    }
    if (!event) break;
    OnEvent(*event);
  }
  MutexLock lock(mutex_);
  std::erase_if(connections_, [&](UnfinishedBytes& one) {
    const std::optional<uint64_t> bytes = one.Read(now_ms);
    if (!bytes) return true;
    if (*bytes <= max_bytes_) return false;
    ++ended_;
    Reset(one.descriptor());
    return true;
  });
}

}  // namespace kvcast::stream
