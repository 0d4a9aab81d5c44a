// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/http_load.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <deque>
#include <string_view>
#include <utility>

#include "apps/support/steady_now.h"
#include "src/base/descriptor.h"

namespace kvcast::tools {
namespace {

constexpr double kAnswerPatienceSeconds = 10;
constexpr uint64_t kTimer = ~uint64_t{0};

using Socket = Descriptor;

Result<Socket> Connect(int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Status(StatusCode::kUnavailable, "no connection to port " + std::to_string(port));
  }
  const int yes = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  return socket;
}

// Returns the size of the answer at the start of `text`; 0: the answer is incomplete.
size_t AnswerBytes(std::string_view text) {
  constexpr std::string_view kLength = "Content-Length: ";
  const size_t head = text.find("\r\n\r\n");
  if (head == std::string_view::npos) return 0;
  const size_t length = text.substr(0, head).find(kLength);
  size_t body = 0;
  if (length != std::string_view::npos) {
    std::from_chars(text.data() + length + kLength.size(), text.data() + head, body);
  }
  return text.size() >= head + 4 + body ? head + 4 + body : 0;
}

struct LoadConnection {
  explicit LoadConnection(Socket&& connected) : socket(std::move(connected)) {}

  Socket socket;
  uint64_t request = 0;  // number of the request in flight
  bool busy = false;
  std::string_view out;  // the unsent rest of the request
  std::string in;
};

class HttpLoad {
 public:
  HttpLoad(const HttpLoadConfig& config, const std::vector<std::string>& requests)
      : config_(config),
        requests_(requests),
        warm_up_(static_cast<uint64_t>(config.warm_up_seconds * config.rate)),
        total_(warm_up_ + static_cast<uint64_t>(config.seconds * config.rate)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

  Status Open() {
    Watch(timer_.get(), kTimer, EPOLLIN, EPOLL_CTL_ADD);
    for (int i = 0; i < config_.connections; ++i) {
      auto socket = Connect(config_.port);
      if (!socket.ok()) return socket.status();
      connections_.emplace_back(std::move(socket).value());
      Watch(connections_.back().socket.get(), static_cast<uint64_t>(i), EPOLLIN, EPOLL_CTL_ADD);
      free_.push_back(static_cast<size_t>(i));
    }
    return {};
  }

  HttpLoadResult Run() {
    result_.offered = total_ - warm_up_;
    result_.latencies.reserve(result_.offered);
    start_ = SteadyNow() + 0.001;
    while (done_ < total_ && SteadyNow() < Due(total_) + kAnswerPatienceSeconds) {
      SendDue();
      Arm();
      std::array<epoll_event, 64> events;
      const int ready =
          epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 100);
      for (int i = 0; i < ready; ++i) OnEvent(events[static_cast<size_t>(i)]);
    }
    result_.failed += total_ - done_;
    result_.seconds = std::max(0.0, last_answer_ - Due(warm_up_));
    return std::move(result_);
  }

 private:
  double Due(uint64_t request) const {
    return start_ + static_cast<double>(request) / config_.rate;
  }

  void Watch(int descriptor, uint64_t id, uint32_t wanted, int operation) const {
    epoll_event event = {};
    event.events = wanted;
    event.data.u64 = id;
    epoll_ctl(epoll_.get(), operation, descriptor, &event);
  }

  void SendDue() {
    const double now = SteadyNow();
    while (next_ < total_ && Due(next_) <= now && !free_.empty()) {
      const size_t connection = free_.front();
      free_.pop_front();
      connections_[connection].busy = true;
      connections_[connection].request = next_;
      connections_[connection].out = requests_[next_ % requests_.size()];
      ++next_;
      Send(connection);
    }
  }

  // Sets the timer to the next due request. A request that waits for a connection is sent as soon
  // as a connection is free.
  void Arm() const {
    if (next_ == total_ || free_.empty()) return;
    const auto ns = static_cast<int64_t>(Due(next_) * 1e9);
    const itimerspec when = {
        .it_interval = {},
        .it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000}};
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  }

  void OnEvent(const epoll_event& event) {
    if (event.data.u64 == kTimer) {
      uint64_t expirations = 0;
      (void)!read(timer_.get(), &expirations, sizeof(expirations));
      return;
    }
    const auto connection = static_cast<size_t>(event.data.u64);
    if ((event.events & EPOLLOUT) != 0) {
      Watch(connections_[connection].socket.get(), event.data.u64, EPOLLIN, EPOLL_CTL_MOD);
      Send(connection);
    }
    if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Receive(connection);
  }

  void Send(size_t number) {
    LoadConnection& connection = connections_[number];
    while (!connection.out.empty()) {
      const ssize_t sent = send(connection.socket.get(), connection.out.data(),
                                connection.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) {
        return Watch(connection.socket.get(), number, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
      }
      if (sent <= 0) return Drop(number);
      connection.out.remove_prefix(static_cast<size_t>(sent));
    }
  }

  void Receive(size_t number) {
    LoadConnection& connection = connections_[number];
    const ssize_t got = recv(connection.socket.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return Drop(number);
    connection.in.append(buffer_.data(), static_cast<size_t>(got));
    const size_t bytes = AnswerBytes(connection.in);
    if (bytes == 0 || !connection.busy) return;
    Count(connection);
    connection.in.erase(0, bytes);
    connection.busy = false;
    free_.push_back(number);
  }

  void Count(const LoadConnection& connection) {
    ++done_;
    if (connection.request < warm_up_) return;
    last_answer_ = SteadyNow();
    if (!connection.in.starts_with("HTTP/1.1 200 ")) {
      ++result_.failed;
      return;
    }
    ++result_.answered;
    const double due = Due(connection.request);
    result_.latencies.push_back({due, static_cast<float>(last_answer_ - due)});
  }

  // A request in flight on this connection counts as failed. The connection is not used again.
  void Drop(size_t number) {
    Watch(connections_[number].socket.get(), number, 0, EPOLL_CTL_DEL);
    if (!connections_[number].busy) std::erase(free_, number);
  }

  const HttpLoadConfig& config_;
  const std::vector<std::string>& requests_;
  const uint64_t warm_up_;  // number of requests of the warm-up
  const uint64_t total_;
  const Socket epoll_;
  const Socket timer_;
  std::vector<LoadConnection> connections_;
  std::deque<size_t> free_;
  std::array<char, 64 << 10> buffer_;
  double start_ = 0;
  double last_answer_ = 0;
  uint64_t next_ = 0;
  uint64_t done_ = 0;
  HttpLoadResult result_;
};

}  // namespace

Result<HttpLoadResult> RunHttpLoad(const HttpLoadConfig& config,
                                   const std::vector<std::string>& requests) {
  if (!(config.seconds > 0 && config.warm_up_seconds >= 0 && config.rate > 0)) {
    return Status(StatusCode::kInvalidArgument,
                  "seconds and rate must be above 0, and warm_up_seconds must not be negative");
  }
  HttpLoad load(config, requests);
  if (Status status = load.Open(); !status.ok()) return status;
  return load.Run();
}

std::string HttpPost(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

Result<std::string> HttpGet(int port, const std::string& path) {
  auto socket = Connect(port);
  if (!socket.ok()) return socket.status();
  const timeval patience = {.tv_sec = static_cast<time_t>(kAnswerPatienceSeconds), .tv_usec = 0};
  setsockopt(socket->get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (send(socket->get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return Status(StatusCode::kUnavailable, path + ": not sent");
  }
  std::string text;
  std::array<char, 16 << 10> buffer;
  for (ssize_t got = 1; got > 0;) {
    got = recv(socket->get(), buffer.data(), buffer.size(), 0);
    if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
  }
  const size_t head = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.1 200 ") || head == std::string::npos) {
    return Status(StatusCode::kUnavailable, path + ": " + text.substr(0, text.find('\r')));
  }
  return text.substr(head + 4);
}

}  // namespace kvcast::tools
