// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/source_sockets.h"

#include <utility>

namespace kvcast::stream {
namespace {

// TCP keep-alive: times in seconds, and a number of probes. A peer that disappears without closing
// its connection is found after 3 s. ZeroMQ's heartbeats are not used, for two reasons. First, if
// the queue of a connection is full, libzmq reads nothing from the connection, and the heartbeats
// treat the connection as lost. Second, libzmq ends the process if a heartbeat is due on a broken
// connection (libzmq issue 3937). libzmq also ends the process if the queue is read after another
// connection has replaced the broken connection.
constexpr int kKeepaliveIdle = 1;
constexpr int kKeepaliveInterval = 1;
constexpr int kKeepaliveProbes = 2;

// libzmq connects again after 100 to 200 ms, and doubles this time after each failure up to the
// maximum. Many engines that do not run, or an address at which no engine listens, then cost few
// packets.
constexpr int kMostReconnectMs = 1000;

// libzmq reads a large frame with one system call, which copies bytes as long as more bytes arrive.
// All live connections share the I/O thread, so one call must not copy a whole frame. With the
// buffer that Linux chooses (up to 32 MiB), a call for a frame of 20 MiB takes up to 16 ms.
constexpr int kReceiveBufferBytes = 256 << 10;

Result<Socket> MakeSocket(std::shared_ptr<Context> context, int type, const std::string& endpoint,
                          const SourceSocketOptions& options) {
  Result<Socket> socket = Socket::Create(std::move(context), type);
  if (!socket.ok()) return socket;
  socket->SetOption(ZMQ_LINGER, 0);
  socket->SetOption(ZMQ_RECONNECT_IVL_MAX, kMostReconnectMs);
  socket->SetOption(ZMQ_MAXMSGSIZE, options.max_frame_bytes);
  if (options.curve) socket->Secure(*options.curve);
  if (endpoint.find('[') != std::string::npos) socket->SetOption(ZMQ_IPV6, 1);
  return socket;
}

}  // namespace

Result<Socket> MakeLiveSocket(std::shared_ptr<Context> context, const std::string& endpoint,
                              const SourceSocketOptions& options) {
  Result<Socket> sub = MakeSocket(std::move(context), ZMQ_SUB, endpoint, options);
  if (!sub.ok()) return sub;
  sub->SetOption(ZMQ_RCVHWM, options.recv_hwm);
  sub->SetOption(ZMQ_RCVBUF, kReceiveBufferBytes);
  sub->SetOption(ZMQ_TCP_KEEPALIVE, 1);
  sub->SetOption(ZMQ_TCP_KEEPALIVE_IDLE, kKeepaliveIdle);
  sub->SetOption(ZMQ_TCP_KEEPALIVE_INTVL, kKeepaliveInterval);
  sub->SetOption(ZMQ_TCP_KEEPALIVE_CNT, kKeepaliveProbes);
  sub->Subscribe(options.topic);
  return sub;
}

Result<Socket> MakeReplaySocket(std::shared_ptr<Context> context, const std::string& endpoint,
                                const SourceSocketOptions& options) {
  return MakeSocket(std::move(context), ZMQ_DEALER, endpoint, options);
}

}  // namespace kvcast::stream
