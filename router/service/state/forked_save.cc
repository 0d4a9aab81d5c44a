// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/forked_save.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace kvcast::router {
namespace {

constexpr int kChildNice = 10;

// The child must not keep the sockets of the router open, because a router that starts again binds
// the same addresses.
void CloseOthers(int fd) {
  constexpr int kStandardStreams = 3;
  if (fd > kStandardStreams) {
    close_range(kStandardStreams, static_cast<unsigned>(fd) - 1, 0);
  }
  close_range(static_cast<unsigned>(fd) + 1, ~0U, 0);
}

[[noreturn]] void RunChild(StateFileWriter& writer, const FrozenShard& frozen, int fd,
                           pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(ESRCH);
  CloseOthers(fd);
  // The child may also run with the normal priority.
  (void)setpriority(PRIO_PROCESS, 0, kChildNice);
  _exit(writer.Write(frozen));
}

}  // namespace

ForkedSave::~ForkedSave() {
  Kill();
  (void)Wait();
}

void ForkedSave::Kill() {
  if (child_ > 0) kill(child_, SIGKILL);
}

void ForkedSave::Begin(StateFileWriter& writer, const FrozenShard& frozen, int fd) {
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ == 0) RunChild(writer, frozen, fd, parent);
  if (child_ < 0) error_ = errno;
}

Status ForkedSave::Wait() {
  const auto failed = [](const char* what, int error) {
    return Status(StatusCode::kUnavailable, std::string(what) + ": " + std::strerror(error));
  };
  if (child_ < 0) return failed("cannot start a child process", error_);
  if (child_ == 0) return Status();
  const pid_t child = std::exchange(child_, 0);
  int state = 0;
  while (waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) return failed("the child process is lost", errno);
  }
  if (WIFSIGNALED(state)) {
    return {StatusCode::kUnavailable,
            "the child process was ended by signal " + std::to_string(WTERMSIG(state))};
  }
  const int error = WEXITSTATUS(state);
  return error == 0 ? Status() : failed("the file cannot be written", error);
}

}  // namespace kvcast::router
