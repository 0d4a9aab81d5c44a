// `kvcast keygen`: makes a CURVE key pair.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "apps/commands/commands.h"
#include "kvcast/stream/curve.h"

namespace kvcast::tools {
namespace {

// The file is created with its final mode, so that no other user can open a secret key.
Status WriteKey(const std::string& path, const std::string& key, mode_t mode, bool replace) {
  const auto failed = [&path] {
    return Status(StatusCode::kUnavailable, path + ": " + std::strerror(errno));
  };
  if (replace && unlink(path.c_str()) != 0 && errno != ENOENT) return failed();
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0 && errno == EEXIST) {
    return {StatusCode::kUnavailable, path + ": exists already; --force replaces it"};
  }
  if (fd < 0) return failed();
  const std::string line = key + "\n";
  const bool written = fchmod(fd, mode) == 0 &&
                       write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
                       fsync(fd) == 0;
  const Status status = written ? Status() : failed();
  close(fd);
  return status;
}

}  // namespace

int RunKeygen(const KeygenOptions& options) {
  const auto keys = CurveKeyPair::Generate();
  if (!keys.ok()) return Fail(keys.status());
  const std::string secret = options.out + ".key";
  const std::string open_file = options.out + ".pub";
  if (Status status = WriteKey(secret, keys->secret_key, 0600, options.force); !status.ok()) {
    return Fail(status);
  }
  if (Status status = WriteKey(open_file, keys->public_key, 0644, /*replace=*/true); !status.ok()) {
    return Fail(status);
  }
  std::printf("%s\n", keys->public_key.c_str());
  return 0;
}

}  // namespace kvcast::tools
