// SPDX-License-Identifier: Apache-2.0
#include "src/base/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kvcast {
namespace {

constexpr size_t kMaxFileBytes = 64 << 10;

Status BadSecretFile(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

// Empty: the open file is a regular file, and no other user can access it.
std::string WhyUnsafe(int file) {
  struct stat info = {};
  if (fstat(file, &info) != 0) return std::strerror(errno);
  if (!S_ISREG(info.st_mode)) return "not a regular file";
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return "other users can access it; set mode 0600 or 0400";
  }
  return "";
}

}  // namespace

Result<std::string> ReadSecretFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return BadSecretFile(std::strerror(errno));
  std::string text;
  std::string error = WhyUnsafe(file);
  char buffer[4096];
  while (error.empty()) {
    const ssize_t got = read(file, buffer, sizeof(buffer));
    if (got < 0) error = std::strerror(errno);
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxFileBytes) error = "longer than 64 KiB";
  }
  explicit_bzero(buffer, sizeof(buffer));
  close(file);
  if (!error.empty()) return BadSecretFile(error);
  return text;
}

}  // namespace kvcast
