// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/tcp_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace kvcast::testing {
namespace {

// Bytes that one direction holds before the proxy stops reading, like a network with full buffers.
constexpr size_t kMaxHeldBytes = size_t{4} << 20;
constexpr int kTickMs = 1;  // poll period while a chunk is delayed

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

uint16_t PortOf(const std::string& endpoint) {
  return static_cast<uint16_t>(std::atoi(endpoint.substr(endpoint.rfind(':') + 1).c_str()));
}

void MakeNonBlocking(int socket) {
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

TcpProxy::TcpProxy(const std::string& target) : target_port_(PortOf(target)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_, 128) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::abort();
  }
  MakeNonBlocking(listener_);
  endpoint_ = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  waker_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  Set(stopping_, true);
  thread_.join();
  for (const Connection& connection : open_) Close(connection);
  close(listener_);
  close(waker_);
}

void TcpProxy::Set(std::atomic<bool>& flag, bool value) {
  flag = value;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(waker_, &one, sizeof(one));
}

void TcpProxy::SwitchTo(const std::string& target) {
  const std::lock_guard lock(mutex_);
  target_port_ = PortOf(target);
}

int TcpProxy::window_probes() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(newest_client_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_backoff;
}

void TcpProxy::Close(const Connection& connection) {
  close(connection.client);
  close(connection.target);
}

// Waits until a socket can be read or written, or until a flag has changed.
int TcpProxy::Poll() const {
  std::vector<pollfd> items = {{listener_, POLLIN, 0}, {waker_, POLLIN, 0}};
  int timeout_ms = -1;
  const auto events = [&](const Direction& read, bool read_stalled, const Direction& write,
                          bool write_stalled) {
    short wanted = 0;
    if (!read_stalled && read.held_bytes < kMaxHeldBytes && !read.ended) wanted |= POLLIN;
    if (write_stalled || write.chunks.empty()) return wanted;
    if (write.chunks.front().due <= Clock::now()) return static_cast<short>(wanted | POLLOUT);
    timeout_ms = kTickMs;
    return wanted;
  };
  for (const Connection& each : open_) {
    const bool to = stall_to_target_;
    const bool from = stall_from_target_;
    items.push_back({each.client, events(each.to_target, to, each.from_target, from), 0});
    items.push_back({each.target, events(each.from_target, from, each.to_target, to), 0});
  }
  // poll always reports a closed peer, even if no event is requested. So items without requested
  // events are removed.
  std::erase_if(items, [](const pollfd& item) { return item.events == 0; });
  return poll(items.data(), items.size(), timeout_ms);
}

void TcpProxy::Run() {
  while (!stopping_) {
    Poll();
    uint64_t woken = 0;
    [[maybe_unused]] const ssize_t got = read(waker_, &woken, sizeof(woken));
    if (cut_.exchange(false)) {
      for (const Connection& connection : open_) Close(connection);
      open_.clear();
    }
    Accept();
    const std::chrono::milliseconds delay(delay_ms_);
    for (auto it = open_.begin(); it != open_.end();) {
      const bool alive = Pump(it->to_target, stall_to_target_, {}) &&
                         Pump(it->from_target, stall_from_target_, delay);
      if (!alive) Close(*it);
      it = alive ? std::next(it) : open_.erase(it);
    }
    connections_ = static_cast<int>(open_.size());
  }
}

void TcpProxy::Accept() {
  for (;;) {
    const int client = accept(listener_, nullptr, nullptr);
    if (client < 0) return;
    const int target = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    {
      const std::lock_guard lock(mutex_);
      address = Loopback(target_port_);
    }
    if (refuse_ || connect(target, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      close(client);
      close(target);
      continue;
    }
    MakeNonBlocking(client);
    MakeNonBlocking(target);
    newest_client_ = client;
    open_.push_back(
        {client, target, {client, target, {}, 0, false}, {target, client, {}, 0, false}});
  }
}

bool TcpProxy::Pump(Direction& direction, bool stalled, std::chrono::milliseconds delay) {
  if (stalled) return true;
  while (direction.held_bytes < kMaxHeldBytes && !direction.ended) {
    Chunk chunk{Clock::now() + delay, std::vector<char>(65536)};
    const ssize_t got = recv(direction.from, chunk.bytes.data(), chunk.bytes.size(), 0);
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      direction.ended = true;
      break;
    }
    chunk.bytes.resize(static_cast<size_t>(got));
    direction.held_bytes += chunk.bytes.size();
    direction.chunks.push_back(std::move(chunk));
  }
  const auto now = Clock::now();
  while (!direction.chunks.empty() && direction.chunks.front().due <= now) {
    Chunk& chunk = direction.chunks.front();
    const ssize_t sent = send(direction.to, chunk.bytes.data() + chunk.sent,
                              chunk.bytes.size() - chunk.sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) return true;
    if (sent < 0) return false;
    passed_bytes_ += static_cast<uint64_t>(sent);
    chunk.sent += static_cast<size_t>(sent);
    direction.held_bytes -= static_cast<size_t>(sent);
    if (chunk.sent == chunk.bytes.size()) direction.chunks.pop_front();
  }
  return !direction.ended || !direction.chunks.empty();
}

}  // namespace kvcast::testing
