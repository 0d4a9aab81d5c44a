// HttpStream: reads and writes the bytes of a connection, with or without TLS. Each handler
// must own a reference that keeps the stream alive. Handlers run on the thread of the stream's
// io_context.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <string_view>
#include <utility>  // Boost.Asio 1.74 does not include it
#include <vector>

namespace kvcast {

class HttpStream {
 public:
  using Error = boost::system::error_code;
  using Socket = boost::asio::generic::stream_protocol::socket;
  // The memory for the bytes of one read.
  using Scratch = std::array<char, 256 << 10>;

  // `context` nullptr: no TLS. All connections share `scratch`, so that an idle connection without
  // TLS holds no memory for received bytes.
  HttpStream(Socket socket, boost::asio::ssl::context* context, Scratch& scratch)
      : socket_(std::move(socket)), scratch_(scratch) {
    Error ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
    if (context != nullptr) tls_ = std::make_unique<Tls>(socket_, *context);
  }

  // Without TLS, the function calls the handler at once.
  template <typename Handler>  // (Error)
  void AsyncHandshake(Handler handler) {
    if (!tls_) return handler(Error());
    tls_->stream.async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }

  bool is_secure() const { return tls_ != nullptr && !tls_->ended; }

  // Only one read may be in progress. REQUIRES: is_secure(). The bytes are valid only during the
  // handler's call.
  template <typename Handler>  // (Error, std::string_view)
  void AsyncReadSecure(Handler handler) {
    tls_->stream.async_read_some(
        boost::asio::buffer(tls_->input),
        [this, handler = std::move(handler)](const Error& error, size_t bytes) mutable {
          handler(error, std::string_view(tls_->input.data(), bytes));
        });
  }
  // Waits until ReadReady can return bytes or the end of the input. REQUIRES: not is_secure().
  template <typename Handler>  // (Error)
  void AsyncWaitReady(Handler handler) {
    socket_.async_wait(Socket::wait_read, std::move(handler));
  }
  // The socket, for ReadySockets.
  int descriptor() { return socket_.native_handle(); }
  // Reads at most `most_bytes`, and never blocks. The bytes are valid until the next call for any
  // stream with this scratch. Empty without an error: no byte has arrived.
  std::string_view ReadReady(size_t most_bytes, Error& error) {
    const size_t bytes = socket_.read_some(boost::asio::buffer(scratch_, most_bytes), error);
    if (error == boost::asio::error::would_block) error = {};
    return {scratch_.data(), bytes};
  }

  // The number of received bytes that were not read. 0: none, or an error. REQUIRES: not
  // is_secure().
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
  }

 private:
  struct Tls {
    Tls(Socket& socket, boost::asio::ssl::context& context) : stream(socket, context) {}
    boost::asio::ssl::stream<Socket&> stream;
    std::array<char, 4 << 10> input;
    bool ended = false;
  };

  void EndSocket() {
    Error ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }

  Socket socket_;
  Scratch& scratch_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace kvcast
