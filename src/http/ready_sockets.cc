// SPDX-License-Identifier: Apache-2.0
#include "src/http/ready_sockets.h"

#include <cerrno>
#include <utility>

namespace kvcast {

ReadySockets::ReadySockets(boost::asio::io_context& io, For readiness)
    : watched_(readiness == For::kBytes ? EPOLLIN | EPOLLRDHUP | EPOLLONESHOT
                                        : EPOLLOUT | EPOLLONESHOT),
      epoll_(io) {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll >= 0) epoll_.assign(epoll);
}

bool ReadySockets::Watch(int socket, uint64_t id) {
  epoll_event event{};
  event.events = watched_;
  event.data.u64 = id;
  const int epoll = epoll_.native_handle();
  if (epoll_ctl(epoll, EPOLL_CTL_MOD, socket, &event) == 0) return true;
  return errno == ENOENT && epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) == 0;
}

void ReadySockets::AsyncWait(std::function<void()> ready) {
  epoll_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [ready = std::move(ready)](const boost::system::error_code& error) {
                      if (!error) ready();
                    });
}

bool ReadySockets::Take(const std::function<void(uint64_t id)>& take) {
  const int count =
      epoll_wait(epoll_.native_handle(), events_.data(), static_cast<int>(events_.size()), 0);
  for (int i = 0; i < count; ++i) take(events_[static_cast<size_t>(i)].data.u64);
  return count == static_cast<int>(events_.size());
}

}  // namespace kvcast
