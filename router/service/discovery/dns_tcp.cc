// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/dns_tcp.h"

#include <arpa/nameser.h>
#include <netinet/in.h>
#include <poll.h>
#include <strings.h>

#include <array>
#include <cerrno>

#include "src/base/clock.h"
#include "src/base/descriptor.h"

namespace kvcast::router {
namespace {

// A connection to a name server. The functions return false after an error, or at the deadline.
class DnsConnection {
 public:
  explicit DnsConnection(int64_t deadline_ms) : deadline_ms_(deadline_ms) {}
  bool Connect(const sockaddr_storage& server);
  bool Send(std::span<const uint8_t> bytes);
  // Fills `bytes`.
  bool Receive(std::span<uint8_t> bytes);

 private:
  bool Await(short events) const;

  const int64_t deadline_ms_;
  Descriptor socket_;
};

bool DnsConnection::Await(short events) const {
  while (true) {
    const int64_t left = deadline_ms_ - SteadyMs();
    if (left <= 0) return false;
    pollfd wait = {socket_.get(), events, 0};
    const int ready = poll(&wait, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool DnsConnection::Connect(const sockaddr_storage& server) {
  socket_ = Descriptor(socket(server.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket_.get() < 0) return false;
  const socklen_t size = server.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&server), size) == 0) return true;
  if (errno != EINPROGRESS || !Await(POLLOUT)) return false;
  int error = 0;
  socklen_t error_size = sizeof(error);
  return getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &error_size) == 0 && error == 0;
}

bool DnsConnection::Send(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!Await(POLLOUT)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool DnsConnection::Receive(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    // Waits before each read, so that a server that sends single bytes cannot exceed the deadline.
    if (!Await(POLLIN)) return false;
    const ssize_t received = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<size_t>(received));
    } else if (received == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return false;
    }
  }
  return true;
}

// True: the message is well-formed and has one question, which is set.
bool ReadQuestion(std::span<const uint8_t> message, ns_msg& parsed, ns_rr& question) {
  return ns_initparse(message.data(), static_cast<int>(message.size()), &parsed) == 0 &&
         ns_msg_count(parsed, ns_s_qd) == 1 && ns_parserr(&parsed, ns_s_qd, 0, &question) == 0;
}

bool IsAnswerTo(std::span<const uint8_t> query, std::span<const uint8_t> message) {
  ns_msg asked, given;
  ns_rr question, repeated;
  return ReadQuestion(query, asked, question) && ReadQuestion(message, given, repeated) &&
         ns_msg_getflag(given, ns_f_qr) != 0 && ns_msg_id(given) == ns_msg_id(asked) &&
         strcasecmp(ns_rr_name(repeated), ns_rr_name(question)) == 0 &&
         ns_rr_type(repeated) == ns_rr_type(question) &&
         ns_rr_class(repeated) == ns_rr_class(question);
}

}  // namespace

std::optional<std::vector<uint8_t>> AskOverTcp(const sockaddr_storage& server,
                                               std::span<const uint8_t> query, int64_t timeout_ms) {
  // Over TCP, the length of a message (2 bytes) precedes the message.
  std::vector<uint8_t> sent = {static_cast<uint8_t>(query.size() >> 8),
                               static_cast<uint8_t>(query.size())};
  sent.insert(sent.end(), query.begin(), query.end());
  std::array<uint8_t, 2> length = {};
  DnsConnection connection(SteadyMs() + timeout_ms);
  if (!connection.Connect(server) || !connection.Send(sent) || !connection.Receive(length)) {
    return std::nullopt;
  }
  std::vector<uint8_t> answer(ns_get16(length.data()));
  if (!connection.Receive(answer) || !IsAnswerTo(query, answer)) return std::nullopt;
  return answer;
}

}  // namespace kvcast::router
