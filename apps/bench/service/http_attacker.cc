// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/service/http_attacks.h"
#include "src/base/descriptor.h"

namespace kvcast::tools {
namespace {

// In production, the attacker runs on another machine. In the benchmark, the attacker and the
// router share the CPU cores. This nice value gives the router more CPU time than the attacker.
constexpr int kNice = 5;
// Maximum wait for an event on a connection. After each wait, the attacker reads `in` and opens the
// missing connections.
constexpr int kPollMs = 10;

sockaddr_in AddressOf(const char* text, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

class Connection {
 public:
  bool is_open() const { return socket_.get() >= 0; }
  int descriptor() const { return socket_.get(); }
  bool has_unsent_bytes() const { return sent_ < bytes_; }

  // Connects `from` an address to 127.0.0.1:`port`. `bytes`: size of the text for Send. False: the
  // connection could not be opened.
  bool Open(const char* from, int port, size_t bytes) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in own = AddressOf(from, 0);
    const sockaddr_in address = AddressOf("127.0.0.1", port);
    // The kernel chooses the port when the socket connects, so that each port can be used once for
    // each address of the router.
    const int at_connect = 1;
    setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &at_connect, sizeof(at_connect));
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0 ||
        connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      return false;
    }
    socket_ = std::move(socket);
    bytes_ = bytes;
    sent_ = 0;
    return true;
  }
  void Close() { socket_ = Descriptor(); }
  // Sends a part of `text`. If `repeats` is true, the call after the last byte starts with the
  // first byte again.
  void Send(const std::string& text, bool repeats, HttpAttackTotals& totals) {
    const ssize_t sent =
        send(socket_.get(), text.data() + sent_, text.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return CloseOnError();
    totals.bytes += static_cast<uint64_t>(sent);
    sent_ += static_cast<size_t>(sent);
    if (repeats && sent_ == bytes_) sent_ = 0;
  }
  void Receive(std::vector<char>& buffer, HttpAttackTotals& totals) {
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0) return CloseOnError();
    if (got == 0) socket_ = Descriptor();
    totals.answered_bytes += static_cast<uint64_t>(got);
  }

 private:
  // EAGAIN and EINTR are no errors of the connection.
  void CloseOnError() {
    if (errno != EAGAIN && errno != EINTR) socket_ = Descriptor();
  }

  Descriptor socket_;
  size_t bytes_ = 0;
  size_t sent_ = 0;
};

class Attacker {
 public:
  Attacker(const HttpAttack& attack, int port)
      : attack_(attack), port_(port), text_(attack.bytes()) {}

  void Prepare() const {
    if (attack_.preparation == nullptr) return;
    const std::string request = attack_.preparation();
    HttpAttackTotals not_counted;
    Connection connection;
    if (!connection.Open(attack_.address, port_, request.size())) return;
    connection.Send(request, /*repeats=*/false, not_counted);
    pollfd answer{connection.descriptor(), POLLIN, 0};
    poll(&answer, 1, kPipeTimeoutMs);
  }

  HttpAttackTotals Run(const PipeEnd& in) {
    std::vector<Connection> connections(static_cast<size_t>(attack_.connections));
    while (!in.Ready()) {
      polled_.clear();
      for (Connection& connection : connections) {
        if (!connection.is_open() && connection.Open(attack_.address, port_, text_.size()))
          ++totals_.connections;
        const int events =
            (attack_.reads ? POLLIN : 0) | (connection.has_unsent_bytes() ? POLLOUT : 0);
        polled_.push_back({connection.descriptor(), static_cast<int16_t>(events), 0});
      }
      poll(polled_.data(), polled_.size(), kPollMs);
      for (size_t i = 0; i < connections.size(); ++i) Handle(polled_[i].revents, connections[i]);
    }
    return totals_;
  }

 private:
  void Handle(int events, Connection& connection) {
    if (!attack_.reads && (events & (POLLHUP | POLLERR)) != 0) return connection.Close();
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) connection.Receive(buffer_, totals_);
    if ((events & POLLOUT) != 0 && connection.is_open()) {
      connection.Send(text_, !attack_.sends_once, totals_);
    }
  }

  const HttpAttack& attack_;
  const int port_;
  const std::string text_;
  std::vector<char> buffer_ = std::vector<char>(1 << 20);
  std::vector<pollfd> polled_;
  HttpAttackTotals totals_;
};

}  // namespace

int AttackOverHttp(const PipeEnd& in, const PipeEnd& out) {
  setpriority(PRIO_PROCESS, 0, kNice);
  HttpAttackOrder order;
  while (in.Get(order, -1)) {
    Attacker attacker(HttpAttacks()[order.attack], order.port);
    attacker.Prepare();
    const HttpAttackTotals totals = attacker.Run(in);
    char byte = 0;
    if (!in.Get(byte, kPipeTimeoutMs) || !out.Put(totals)) return 1;
  }
  return 0;
}

}  // namespace kvcast::tools
