// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/stalled_observers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>
#include <vector>
#include <zmq.hpp>

namespace kvcast::tools {
namespace {

constexpr std::array<std::string_view, 3> kPaths = {"/dump", "/v1/events?limit=500", "/v1/state"};
constexpr int kSmallBuffer = 4096;

int ConnectSmall(int port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &kSmallBuffer, sizeof(kSmallBuffer));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return descriptor;
  }
  close(descriptor);
  return -1;
}

}  // namespace

class StalledObservers::Impl {
 public:
  ~Impl() {
    stopping_ = true;
    if (asking_.joinable()) asking_.join();
    for (const int client : clients_) {
      if (client >= 0) close(client);
    }
  }

  Status Start(int count, int port, const std::string& relay) {
    clients_.assign(kPaths.size() * static_cast<size_t>(count), -1);
    for (int i = 0; i < count && !relay.empty(); ++i) {
      zmq::socket_t& socket = subscribers_.emplace_back(context_, zmq::socket_type::sub);
      socket.set(zmq::sockopt::rcvhwm, 1);
      socket.set(zmq::sockopt::rcvbuf, kSmallBuffer);
      socket.set(zmq::sockopt::linger, 0);
      socket.set(zmq::sockopt::subscribe, "");
      socket.connect(relay);
    }
    asking_ = std::thread([this, port] { Ask(port); });
    return {};
  }

 private:
  // Sends ten requests per second on each connection, like a dashboard with a short refresh
  // interval.
  void Ask(int port) {
    while (!stopping_) {
      for (size_t i = 0; i < clients_.size(); ++i) {
        if (clients_[i] < 0) clients_[i] = ConnectSmall(port);
        const std::string request = "GET " + std::string(kPaths[i % kPaths.size()]) +
                                    " HTTP/1.1\r\nHost: localhost\r\n\r\n";
        const ssize_t sent =
            send(clients_[i], request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0 || errno == EAGAIN) continue;
        close(clients_[i]);
        clients_[i] = -1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  zmq::context_t context_;
  std::vector<zmq::socket_t> subscribers_;
  std::vector<int> clients_;  // after Start, only asking_ uses them
  std::atomic<bool> stopping_{false};
  std::thread asking_;
};

StalledObservers::StalledObservers() = default;
StalledObservers::~StalledObservers() = default;

Status StalledObservers::Start(int count, int port, const std::string& relay) {
  impl_ = std::make_unique<Impl>();
  return impl_->Start(count, port, relay);
}

}  // namespace kvcast::tools
