// HttpStream: reads and writes the bytes of a connection, with or without TLS. Each handler
// must own a reference that keeps the stream alive. Handlers run on the thread of the stream's
// io_context. The server decides when bytes are read from the socket, also the bytes of TLS,
// because a handshake takes much time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <string_view>
#include <utility>  // Boost.Asio 1.74 does not include it
#include <vector>

#include "src/http/held_socket.h"

namespace kvcast {

class HttpStream {
 public:
  using Error = HeldSocket::Error;
  // The memory for the bytes of one read.
  using Scratch = std::array<char, 256 << 10>;

  // `context` nullptr: no TLS. All connections share `scratch`, so that an idle connection without
  // TLS holds no memory for received bytes.
  HttpStream(HeldSocket socket, boost::asio::ssl::context* context, Scratch& scratch)
      : socket_(std::move(socket)), context_(context), scratch_(scratch) {
    const int no_delay = 1;
    setsockopt(socket_.descriptor(), IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
  }

  int descriptor() const { return socket_.descriptor(); }
  bool is_secure() const { return context_ != nullptr && !(tls_ && tls_->ended); }
  // True: the stream uses TLS, and AsyncHandshake was not called.
  bool needs_handshake() const { return context_ != nullptr && !tls_; }
  // True: TLS waits for bytes from the socket.
  bool awaits_secure() const { return socket_.awaits_bytes(); }
  bool awaits_room() const { return socket_.awaits_room(); }

  // The number of received bytes that were not read from the socket. 0: none, or an error.
  size_t ReceivedBytes() const {
    int bytes = 0;
    return ioctl(descriptor(), FIONREAD, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
  }
  // True: the client has closed the connection, or has ended its sending side.
  static bool ClientEnded(int descriptor) {
    pollfd end{descriptor, POLLRDHUP, 0};
    return poll(&end, 1, 0) == 1;
  }

  // TLS takes memory only from this call on. REQUIRES: needs_handshake().
  template <typename Handler>  // (Error)
  void AsyncHandshake(Handler handler) {
    tls_ = std::make_unique<Tls>(socket_, *context_);
    tls_->stream.async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }
  // Only one read may be in progress. REQUIRES: is_secure(), and AsyncHandshake has succeeded. The
  // bytes are valid only during the handler's call.
  template <typename Handler>  // (Error, std::string_view)
  void AsyncReadSecure(Handler handler) {
    tls_->stream.async_read_some(
        boost::asio::buffer(tls_->input),
        [this, handler = std::move(handler)](const Error& error, size_t bytes) mutable {
          handler(error, std::string_view(tls_->input.data(), bytes));
        });
  }
  // TLS reads bytes from the socket, and may call handlers. REQUIRES: awaits_secure().
  void ReadSecure() { socket_.GoOnReading(); }

  // Reads at most `most_bytes`, and never blocks. REQUIRES: not is_secure(). The bytes are valid
  // until the next call for any stream with this scratch. Empty without an error: no byte has
  // arrived.
  std::string_view ReadReady(size_t most_bytes, Error& error) {
    const size_t bytes = socket_.Read(scratch_.data(), most_bytes, error);
    if (error == boost::asio::error::would_block) error = {};
    return {scratch_.data(), bytes};
  }

  // Only one write may be in progress. The write may send only the first part of `bytes`.
  template <typename Handler>  // (Error, size_t)
  void AsyncWrite(std::string_view bytes, Handler handler) {
    const boost::asio::const_buffer buffer(bytes.data(), bytes.size());
    if (tls_) {
      tls_->stream.async_write_some(buffer, std::move(handler));
    } else {
      socket_.async_write_some(buffer, std::move(handler));
    }
  }
  // The write that waits for room goes on. REQUIRES: awaits_room().
  void GoOnWriting() { socket_.GoOnWriting(); }

  // Ends the sending side. The caller must ignore bytes that it reads after this call.
  template <typename Handler>  // ()
  void AsyncEnd(Handler handler) {
    if (!tls_) {
      socket_.End();
      return handler();
    }
    tls_->stream.async_shutdown([this, handler = std::move(handler)](const Error&) mutable {
      tls_->ended = true;
      socket_.End();
      handler();
    });
  }

  void Close() { socket_.Close(); }

 private:
  struct Tls {
    Tls(HeldSocket& socket, boost::asio::ssl::context& context) : stream(socket, context) {}
    boost::asio::ssl::stream<HeldSocket&> stream;
    std::array<char, 4 << 10> input;
    bool ended = false;
  };

  HeldSocket socket_;
  boost::asio::ssl::context* context_;
  Scratch& scratch_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace kvcast
