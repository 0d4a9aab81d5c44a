// SPDX-License-Identifier: Apache-2.0
#include "src/http/held_socket.h"

#include <sys/socket.h>

#include <cerrno>

namespace kvcast {
namespace {

// The result of a system call that returns the number of bytes.
size_t BytesOf(ssize_t result, HeldSocket::Error& error) {
  if (result >= 0) return static_cast<size_t>(result);
  const bool again = errno == EAGAIN || errno == EINTR;
  error = {again ? EWOULDBLOCK : errno, boost::system::system_category()};
  return 0;
}

}  // namespace

size_t HeldSocket::Read(void* to, size_t most_bytes, Error& error) {
  const ssize_t got = recv(socket_.get(), to, most_bytes, MSG_DONTWAIT);
  if (got == 0) error = boost::asio::error::eof;
  return BytesOf(got, error);
}

size_t HeldSocket::Write(const void* from, size_t bytes, Error& error) {
  return BytesOf(send(socket_.get(), from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL), error);
}

void HeldSocket::End() { shutdown(socket_.get(), SHUT_WR); }

void HeldSocket::Close() {
  socket_ = Descriptor();
  if (read_) boost::asio::post(io_, std::exchange(read_, nullptr));
  if (write_) boost::asio::post(io_, std::exchange(write_, nullptr));
}

}  // namespace kvcast
