// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/frames/zmtp_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace kvcast::tools {
namespace {

constexpr uint8_t kMore = 1;
constexpr uint8_t kLong = 2;
constexpr uint8_t kCommand = 4;
constexpr size_t kGreetingBytes = 64;

Status Unavailable(const std::string& operation) {
  return Status(StatusCode::kUnavailable, operation + ": " + std::strerror(errno));
}

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

// A command that fits into a short frame.
std::string Command(const std::string& name, const std::string& data) {
  const std::string body = BigEndian(name.size(), 1) + name + data;
  return BigEndian(kCommand, 1) + BigEndian(body.size(), 1) + body;
}

std::string Greeting() {
  std::string greeting = "\xff" + std::string(8, '\0') + "\x7f\x03\x01NULL";
  greeting.resize(kGreetingBytes);
  return greeting;
}

}  // namespace

Result<ZmtpPeer> ZmtpPeer::Connect(const std::string& endpoint, int timeout_ms) {
  const size_t colon = endpoint.rfind(':');
  uint16_t port = 0;
  const char* end = endpoint.data() + endpoint.size();
  if (!endpoint.starts_with("tcp://") ||
      std::from_chars(endpoint.data() + colon + 1, end, port).ptr != end) {
    return Status(StatusCode::kInvalidArgument, endpoint + ": not a tcp endpoint");
  }
  ZmtpPeer peer(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), timeout_ms);
  if (peer.descriptor_ < 0) return Unavailable("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(peer.descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return Unavailable(endpoint);
  }
  const int on = 1;
  setsockopt(peer.descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const timeval timeout{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(peer.descriptor_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  return peer;
}

ZmtpPeer::ZmtpPeer(ZmtpPeer&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      timeout_ms_(other.timeout_ms_),
      pings_(other.pings_),
      received_(std::move(other.received_)) {}

ZmtpPeer& ZmtpPeer::operator=(ZmtpPeer&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  timeout_ms_ = other.timeout_ms_;
  pings_ = other.pings_;
  received_ = std::move(other.received_);
  return *this;
}

ZmtpPeer::~ZmtpPeer() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status ZmtpPeer::Send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(descriptor_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Unavailable("send");
    sent += static_cast<size_t>(n);
  }
  return Status();
}

Status ZmtpPeer::ReceiveSome() {
  pollfd item{descriptor_, POLLIN, 0};
  const int ready = poll(&item, 1, timeout_ms_);
  if (ready < 0 && errno == EINTR) return Status();
  if (ready < 0) return Unavailable("poll");
  if (ready == 0) return Status(StatusCode::kUnavailable, "the server sent no more bytes in time");
  char chunk[16384];
  const ssize_t n = recv(descriptor_, chunk, sizeof(chunk), 0);
  if (n < 0 && errno == EINTR) return Status();
  if (n < 0) return Unavailable("recv");
  if (n == 0) return Status(StatusCode::kUnavailable, "the server closed the connection");
  received_.append(chunk, static_cast<size_t>(n));
  return Status();
}

Status ZmtpPeer::ReceiveAtLeast(size_t bytes) {
  while (received_.size() < bytes) {
    if (Status status = ReceiveSome(); !status.ok()) return status;
  }
  return Status();
}

Status ZmtpPeer::Handshake(const std::string& socket_type) {
  const std::string name = "Socket-Type";
  const std::string ready =
      BigEndian(name.size(), 1) + name + BigEndian(socket_type.size(), 4) + socket_type;
  if (Status status = Send(Greeting() + Command("READY", ready)); !status.ok()) return status;
  if (Status status = ReceiveAtLeast(kGreetingBytes); !status.ok()) return status;
  received_.erase(0, kGreetingBytes);
  uint8_t flags = 0;
  const Result<std::string> answer = TakeFrame(flags);
  if (!answer.ok()) return answer.status();
  if (flags == kCommand && answer->starts_with("\x05READY")) return Status();
  return Status(StatusCode::kMalformed, "the server did not answer READY");
}

Status ZmtpPeer::Subscribe(const std::string& topic) { return Send(Command("SUBSCRIBE", topic)); }

// The server may answer the first ping while it still parses the bytes before this ping. When it
// reads the second ping, it has processed all bytes before the first ping.
Status ZmtpPeer::Fence() {
  if (Status status = PingPong(); !status.ok()) return status;
  return PingPong();
}

Status ZmtpPeer::PingPong() {
  const std::string context = "kvcast-fence" + BigEndian(++pings_, 4);
  if (Status status = Send(Command("PING", BigEndian(0, 2) + context)); !status.ok()) return status;
  const std::string pong = Command("PONG", context);
  for (;;) {
    const size_t found = received_.find(pong);
    if (found != std::string::npos) {
      received_.erase(found, pong.size());
      return Status();
    }
    if (Status status = ReceiveSome(); !status.ok()) return status;
  }
}

Result<std::string> ZmtpPeer::TakeFrame(uint8_t& flags) {
  if (Status status = ReceiveAtLeast(2); !status.ok()) return status;
  flags = static_cast<uint8_t>(received_[0]);
  const size_t length_bytes = (flags & kLong) != 0 ? 8 : 1;
  if (Status status = ReceiveAtLeast(1 + length_bytes); !status.ok()) return status;
  uint64_t size = 0;
  for (size_t i = 1; i <= length_bytes; ++i) size = size << 8 | static_cast<uint8_t>(received_[i]);
  const size_t begin = 1 + length_bytes;
  if (Status status = ReceiveAtLeast(begin + size); !status.ok()) return status;
  std::string body = received_.substr(begin, size);
  received_.erase(0, begin + size);
  return body;
}

Status ZmtpPeer::SendMessage(const std::vector<std::string>& frames) {
  std::string bytes;
  for (size_t i = 0; i < frames.size(); ++i) {
    const uint8_t more = i + 1 < frames.size() ? kMore : 0;
    const bool is_long = frames[i].size() > 255;
    bytes += BigEndian(is_long ? more | kLong : more, 1);
    bytes += BigEndian(frames[i].size(), is_long ? 8 : 1) + frames[i];
  }
  return Send(bytes);
}

Result<std::vector<std::string>> ZmtpPeer::ReceiveMessage() {
  std::vector<std::string> frames;
  for (uint8_t flags = kMore; (flags & kMore) != 0;) {
    Result<std::string> frame = TakeFrame(flags);
    if (!frame.ok()) return frame.status();
    frames.push_back(std::move(frame).value());
  }
  return frames;
}

}  // namespace kvcast::tools
