// HeldSocket: a socket whose waiting reads and writes continue only when the owner calls
// GoOnReading or GoOnWriting. The owner therefore decides which connection is served next. Without
// this class, Boost.Asio would run the handlers of all ready sockets, and the server could not
// choose the order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <utility>

#include "src/base/descriptor.h"

namespace kvcast {

// Thread-compatible. Handlers run on the thread of the io_context.
class HeldSocket {
 public:
  using Error = boost::system::error_code;
  using executor_type = boost::asio::io_context::executor_type;
  using lowest_layer_type = HeldSocket;
  // Called when a read waits for bytes, or a write waits for room.
  struct Waits {
    std::function<void()> for_bytes;
    std::function<void()> for_room;
  };

  // `socket` must not block.
  HeldSocket(Descriptor socket, boost::asio::io_context& io, Waits waits)
      : socket_(std::move(socket)), io_(io), waits_(std::move(waits)) {}

  int descriptor() const { return socket_.get(); }
  // Read and Write never block. asio::error::would_block: no byte has arrived, or there is no
  // room.
  size_t Read(void* to, size_t most_bytes, Error& error);
  size_t Write(const void* from, size_t bytes, Error& error);
  // Ends the sending side.
  void End();
  // The operations that wait complete later, with an error. Otherwise the handlers that wait inside
  // TLS would never run, and their references would keep the connection in memory.
  void Close();

  bool awaits_bytes() const { return read_ != nullptr; }
  // The read that waits goes on. If there are no bytes, the read waits again. REQUIRES:
  // awaits_bytes().
  void GoOnReading() { std::exchange(read_, nullptr)(); }
  bool awaits_room() const { return write_ != nullptr; }
  // As GoOnReading. REQUIRES: awaits_room().
  void GoOnWriting() { std::exchange(write_, nullptr)(); }

  // For boost::asio::ssl::stream. A read waits until GoOnReading. A write waits only if there is no
  // room.
  lowest_layer_type& lowest_layer() { return *this; }
  executor_type get_executor() { return io_.get_executor(); }
  template <typename Buffers, typename Handler>  // (Error, size_t)
  void async_read_some(const Buffers& buffers, Handler handler) {
    const boost::asio::mutable_buffer buffer = *boost::asio::buffer_sequence_begin(buffers);
    // A read of no bytes only posts its handler.
    if (buffer.size() == 0) return Post(std::move(handler), {}, 0);
    if (!is_open()) return Post(std::move(handler), boost::asio::error::bad_descriptor, 0);
    read_ = [this, buffer, handler]() mutable {
      Error error;
      const size_t bytes = Read(buffer.data(), buffer.size(), error);
      if (error == boost::asio::error::would_block) return async_read_some(buffer, handler);
      handler(error, bytes);
    };
    waits_.for_bytes();
  }
  template <typename Buffers, typename Handler>  // (Error, size_t)
  void async_write_some(const Buffers& buffers, Handler handler) {
    const boost::asio::const_buffer buffer = *boost::asio::buffer_sequence_begin(buffers);
    Error error;
    const size_t bytes = Write(buffer.data(), buffer.size(), error);
    if (error != boost::asio::error::would_block) return Post(std::move(handler), error, bytes);
    write_ = [this, buffer, handler]() mutable { async_write_some(buffer, handler); };
    waits_.for_room();
  }

 private:
  bool is_open() const { return socket_.get() >= 0; }
  template <typename Handler>
  void Post(Handler handler, Error error, size_t bytes) {
    boost::asio::post(
        io_, [handler = std::move(handler), error, bytes]() mutable { handler(error, bytes); });
  }

  Descriptor socket_;
  boost::asio::io_context& io_;
  Waits waits_;
  std::function<void()> read_;   // nullptr: no read waits
  std::function<void()> write_;  // nullptr: no write waits
};

}  // namespace kvcast
