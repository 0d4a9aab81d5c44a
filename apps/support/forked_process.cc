// SPDX-License-Identifier: Apache-2.0
#include "apps/support/forked_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>

namespace kvcast::tools {

PipeEnd::~PipeEnd() { close(descriptor_); }

bool PipeEnd::Write(const void* data, size_t bytes) const {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(descriptor_, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

bool PipeEnd::Read(void* data, size_t bytes, int timeout_ms) const {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    pollfd item{descriptor_, POLLIN, 0};
    const int ready = poll(&item, 1, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(descriptor_, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool PipeEnd::Ready() const {
  pollfd item{descriptor_, POLLIN, 0};
  return poll(&item, 1, 0) > 0;
}

ForkedProcess::ForkedProcess(pid_t pid, int to, int from)
    : pid_(pid), to_(std::make_unique<PipeEnd>(to)), from_(std::make_unique<PipeEnd>(from)) {}

ForkedProcess::~ForkedProcess() {
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::unique_ptr<ForkedProcess>> ForkedProcess::Start(
    const std::function<int(const PipeEnd& in, const PipeEnd& out)>& run) {
  std::array<int, 2> to{};
  std::array<int, 2> from{};
  if (pipe2(to.data(), O_CLOEXEC) != 0) return Status(StatusCode::kUnavailable, "pipe failed");
  if (pipe2(from.data(), O_CLOEXEC) != 0) {
    close(to[0]);
    close(to[1]);
    return Status(StatusCode::kUnavailable, "pipe failed");
  }
  signal(SIGPIPE, SIG_IGN);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(to[1]);
    close(from[0]);
    _exit(run(PipeEnd(to[0]), PipeEnd(from[1])));
  }
  close(to[0]);
  close(from[1]);
  if (pid < 0) {
    close(to[1]);
    close(from[0]);
    return Status(StatusCode::kUnavailable, "fork failed");
  }
  return std::unique_ptr<ForkedProcess>(new ForkedProcess(pid, to[1], from[0]));
}

double ForkedProcess::CpuSeconds() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double ForkedProcess::ResidentMiB() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

}  // namespace kvcast::tools
