// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace kvcast::stream {

Result<std::shared_ptr<Waker>> Waker::Create() {
  const int descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (descriptor < 0) {
    return Status(StatusCode::kUnavailable, std::string("eventfd: ") + std::strerror(errno));
  }
  return std::shared_ptr<Waker>(new Waker(descriptor));
}

Waker::~Waker() { close(descriptor_); }

// The write fails only if the counter is at its maximum. The read fails only if the counter is 0.
// Both errors (EAGAIN) can be ignored.
void Waker::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(descriptor_, &one, sizeof(one));
}

void Waker::Drain() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(descriptor_, &count, sizeof(count));
}

}  // namespace kvcast::stream
