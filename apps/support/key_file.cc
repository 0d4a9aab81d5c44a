// SPDX-License-Identifier: Apache-2.0
#include "apps/support/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kvcast::tools {

Status WriteKeyFile(const std::string& path, const std::string& text, mode_t mode, bool replace) {
  const auto failed = [&path] {
    return Status(StatusCode::kUnavailable, path + ": " + std::strerror(errno));
  };
  if (replace && unlink(path.c_str()) != 0 && errno != ENOENT) return failed();
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0 && errno == EEXIST) {
    return {StatusCode::kFailedPrecondition, path + ": exists already"};
  }
  if (fd < 0) return failed();
  const std::string line = text + "\n";
  const bool written = fchmod(fd, mode) == 0 &&
                       write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
                       fsync(fd) == 0;
  const Status status = written ? Status() : failed();
  close(fd);
  return status;
}

}  // namespace kvcast::tools
