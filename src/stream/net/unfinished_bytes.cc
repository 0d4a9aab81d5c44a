// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/unfinished_bytes.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace kvcast::stream {
namespace {

// Returns the inode; 0: the descriptor is closed. libzmq may close the descriptor during the call.
// The function calls statx(), because ThreadSanitizer reports this race for fstat().
uint64_t InodeOf(int descriptor) {
  struct statx info {};
  return statx(descriptor, "", AT_EMPTY_PATH, STATX_INO, &info) == 0 ? info.stx_ino : 0;
}

// The bytes that a TCP connection has received. 0: another kind of connection. nullopt: not a
// connection.
std::optional<uint64_t> ReceivedBytes(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
    return info.tcpi_bytes_received;
  }
  if (errno == EBADF || errno == ENOTSOCK) return std::nullopt;
  return 0;
}

}  // namespace

UnfinishedBytes::UnfinishedBytes(int descriptor, int64_t now_ms)
    : descriptor_(descriptor), inode_(InodeOf(descriptor)), read_ms_(now_ms) {}

bool UnfinishedBytes::is_open() const { return inode_ != 0 && InodeOf(descriptor_) == inode_; }

// is_open makes a system call, so Read calls is_open only if new bytes would count.
std::optional<uint64_t> UnfinishedBytes::Read(int64_t now_ms) {
  const std::optional<uint64_t> received = ReceivedBytes(descriptor_);
  if (!received) return std::nullopt;
  const bool counts = !has_message_ && *received != received_;
  if (counts && !is_open()) return std::nullopt;
  const uint64_t more = *received - std::min(*received, std::exchange(received_, *received));
  const int64_t passed_ms = std::max<int64_t>(now_ms - std::exchange(read_ms_, now_ms), 0);
  unfinished_ = std::exchange(has_message_, false) ? 0 : unfinished_ + more;
  free_ += static_cast<uint64_t>(passed_ms) * kFreeBytesPerSecond;
  const uint64_t freed = std::min(unfinished_, free_ / 1000);
  unfinished_ -= freed;
  free_ = std::min<uint64_t>(free_ - freed * 1000, 1000);
  return unfinished_;
}

}  // namespace kvcast::stream
