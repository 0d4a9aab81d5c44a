// HttpStream: reads and writes the bytes of a connection, with or without TLS. Each handler
// must own a reference that keeps the stream alive. Handlers run on the thread of the stream's
// io_context. The server decides when bytes are read from the socket, also the bytes of TLS,
// because a handshake takes much time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>  // Boost.Asio 1.74 does not include it
#include <vector>

namespace kvcast {

// The socket below TLS. A read waits until ReadNow is called.
class HeldSocket {
 public:
  using Error = boost::system::error_code;
  using Socket = boost::asio::generic::stream_protocol::socket;
  using lowest_layer_type = Socket::lowest_layer_type;
  using executor_type = Socket::executor_type;

  // `await_bytes` is called when a read begins to wait.
  HeldSocket(Socket& socket, std::function<void()> await_bytes)
      : socket_(socket), await_bytes_(std::move(await_bytes)) {}

  bool waits() const { return read_ != nullptr; }
  // Reads the bytes that have arrived, and passes them to the read that waits. Without bytes, the
  // read waits again. REQUIRES: waits().
  void ReadNow() { std::exchange(read_, nullptr)(); }
  // The read that waits is not completed.
  void Drop() { const auto dropped = std::exchange(read_, nullptr); }

  // For boost::asio::ssl::stream.
  lowest_layer_type& lowest_layer() { return socket_.lowest_layer(); }
  executor_type get_executor() { return socket_.get_executor(); }
  template <typename Buffers, typename Handler>  // (Error, size_t)
  void async_read_some(const Buffers& buffers, Handler handler) {
    // A read of no bytes only posts its handler.
    if (boost::asio::buffer_size(buffers) == 0) {
      return socket_.async_read_some(buffers, std::move(handler));
    }
    read_ = [this, buffers, handler]() mutable {
      Error error;
      const size_t bytes = socket_.read_some(buffers, error);
      if (error == boost::asio::error::would_block) return async_read_some(buffers, handler);
      handler(error, bytes);
    };
    await_bytes_();
  }
  template <typename Buffers, typename Handler>  // (Error, size_t)
  void async_write_some(const Buffers& buffers, Handler handler) {
    socket_.async_write_some(buffers, std::move(handler));
  }

 private:
  Socket& socket_;
  std::function<void()> await_bytes_;
  std::function<void()> read_;  // nullptr: no read waits
};

class HttpStream {
 public:
  using Error = HeldSocket::Error;
  using Socket = HeldSocket::Socket;
  // The memory for the bytes of one read.
  using Scratch = std::array<char, 256 << 10>;

  // `context` nullptr: no TLS. All connections share `scratch`, so that an idle connection without
  // TLS holds no memory for received bytes.
  HttpStream(Socket socket, boost::asio::ssl::context* context, Scratch& scratch)
      : socket_(std::move(socket)), context_(context), scratch_(scratch) {
    Error ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  }

  // True: the stream uses TLS, and AsyncHandshake was not called.
  bool needs_handshake() const { return context_ != nullptr && !tls_; }
  // TLS takes memory only from this call on. `await_bytes` is called each time TLS needs bytes from
  // the socket, also during reads and at the end. ReadSecure must be called when the socket has
  // bytes. REQUIRES: needs_handshake().
  template <typename Handler>  // (Error)
  void AsyncHandshake(std::function<void()> await_bytes, Handler handler) {
    tls_ = std::make_unique<Tls>(socket_, std::move(await_bytes), *context_);
    tls_->stream.async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }
  // True: the client has closed the connection, or has ended its sending side.
  bool ClientEnded() {
    pollfd end{descriptor(), POLLRDHUP, 0};
    return poll(&end, 1, 0) == 1;
  }
  // True: TLS needs bytes from the socket.
  bool awaits_secure() const { return tls_ != nullptr && tls_->socket.waits(); }
  // Reads bytes from the socket, and may call handlers. REQUIRES: awaits_secure().
  void ReadSecure() { tls_->socket.ReadNow(); }

  bool is_secure() const { return context_ != nullptr && !(tls_ && tls_->ended); }

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
  // Waits until the socket has bytes or the end of the input.
  template <typename Handler>  // (Error)
  void AsyncWaitReady(Handler handler) {
    socket_.async_wait(Socket::wait_read, std::move(handler));
  }
  // The socket, for ReadySockets.
  int descriptor() { return socket_.native_handle(); }
  // Reads at most `most_bytes`, and never blocks. REQUIRES: not is_secure(). The bytes are valid
  // until the next call for any stream with this scratch. Empty without an error: no byte has
  // arrived.
  std::string_view ReadReady(size_t most_bytes, Error& error) {
    const size_t bytes = socket_.read_some(boost::asio::buffer(scratch_, most_bytes), error);
    if (error == boost::asio::error::would_block) error = {};
    return {scratch_.data(), bytes};
  }

  // The number of received bytes that were not read from the socket. 0: none, or an error.
  size_t ReceivedBytes() const {
    Error ignored;
    return socket_.available(ignored);
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

  // Ends the sending side. The caller must ignore bytes that it reads after this call.
  template <typename Handler>  // ()
  void AsyncEnd(Handler handler) {
    if (!tls_) {
      EndSocket();
      return handler();
    }
    tls_->stream.async_shutdown([this, handler = std::move(handler)](const Error&) mutable {
      tls_->ended = true;
      EndSocket();
      handler();
    });
  }

  void Close() {
    Error ignored;
    socket_.close(ignored);
    if (tls_) tls_->socket.Drop();
  }

 private:
  struct Tls {
    Tls(Socket& plain, std::function<void()> await_bytes, boost::asio::ssl::context& context)
        : socket(plain, std::move(await_bytes)), stream(socket, context) {}
    HeldSocket socket;
    boost::asio::ssl::stream<HeldSocket&> stream;
    std::array<char, 4 << 10> input;
    bool ended = false;
  };

  void EndSocket() {
    Error ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }

  Socket socket_;
  boost::asio::ssl::context* context_;
  Scratch& scratch_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace kvcast
