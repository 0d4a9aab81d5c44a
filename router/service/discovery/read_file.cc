// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/descriptor.h"

namespace kvcast::router {
namespace {

// The text of an error code. Unlike strerror, it may be called by several threads.
std::string ErrorText(int code) {
  char text[128];
  return strerror_r(code, text, sizeof(text));  // the GNU version, which returns the text
}

}  // namespace

Result<std::string> ReadRegularFile(const std::string& path, size_t max_mib) {
  const auto failed = [](std::string why) { return Status(StatusCode::kNotFound, std::move(why)); };
  // O_NONBLOCK: open() must not block on a pipe without a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) return failed(ErrorText(errno));
  if (!S_ISREG(info.st_mode)) return failed("not a regular file");
  std::string text;
  for (;;) {
    const size_t old = text.size();
    text.resize(old + 65536);
    const ssize_t got = read(file.get(), text.data() + old, text.size() - old);
    if (got < 0 && errno != EINTR) return failed(ErrorText(errno));
    text.resize(old + static_cast<size_t>(got > 0 ? got : 0));
    if (got == 0) return text;
    if (text.size() > max_mib << 20) {
      return failed("larger than " + std::to_string(max_mib) + " MiB");
    }
  }
}

}  // namespace kvcast::router
