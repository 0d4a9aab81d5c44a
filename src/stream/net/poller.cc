// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/poller.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

namespace kvcast::stream {
namespace {

// If more descriptors are ready, the next epoll_wait returns the remaining descriptors first.
constexpr size_t kEventsPerWait = 64;

Status Failure(const char* what) {
  return {StatusCode::kUnavailable, std::string(what) + ": " + std::strerror(errno)};
}

}  // namespace

Poller::Watch& Poller::Watch::operator=(Watch&& other) noexcept {
  if (this == &other) return *this;
  End();
  poller_ = std::exchange(other.poller_, nullptr);
  descriptor_ = other.descriptor_;
  return *this;
}

void Poller::Watch::End() {
  if (poller_ != nullptr) epoll_ctl(poller_->descriptor_, EPOLL_CTL_DEL, descriptor_, nullptr);
  poller_ = nullptr;
}

Result<std::unique_ptr<Poller>> Poller::Create() {
  const int descriptor = epoll_create1(EPOLL_CLOEXEC);
  if (descriptor < 0) return Failure("epoll_create1");
  return std::unique_ptr<Poller>(new Poller(descriptor));
}

Poller::~Poller() { close(descriptor_); }

Result<Poller::Watch> Poller::AddFor(int descriptor, uint32_t events,
                                     std::atomic<bool>* ready) const {
  epoll_event event{};
  event.events = events;
  event.data.ptr = ready;
  if (epoll_ctl(descriptor_, EPOLL_CTL_ADD, descriptor, &event) != 0) return Failure("epoll_ctl");
  return Watch(this, descriptor);
}

Result<Poller::Watch> Poller::Add(int descriptor, std::atomic<bool>* ready) const {
  return AddFor(descriptor, EPOLLIN, ready);
}

// EPOLLET: another thread may read the descriptor later. Without EPOLLET, each Wait would return at
// once until that thread has read it.
Result<Poller::Watch> Poller::AddEdges(int descriptor, std::atomic<bool>* ready) const {
  return AddFor(descriptor, EPOLLIN | EPOLLET, ready);
}

void Poller::Wait(int64_t timeout_ms) const {
  std::array<epoll_event, kEventsPerWait> events;
  const auto timeout =
      static_cast<int>(std::clamp<int64_t>(timeout_ms, -1, std::numeric_limits<int>::max()));
  const int count = epoll_wait(descriptor_, events.data(), events.size(), timeout);
  for (int i = 0; i < count; ++i) static_cast<std::atomic<bool>*>(events[i].data.ptr)->store(true);
}

}  // namespace kvcast::stream
