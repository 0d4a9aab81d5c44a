// SPDX-License-Identifier: Apache-2.0
#include "apps/support/stop.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace kvcast::tools {
namespace {

// Any thread may run a signal handler, so the flags are atomic.
std::atomic<int> stop_signal{0};
std::atomic<bool> reload_signal{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void OnSignal(int signal) {
  if (stop_signal != 0) _exit(128 + signal);
  stop_signal = signal;
}

void OnReloadSignal(int) { reload_signal = true; }

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;  // without SA_RESTART, so that blocking calls return
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // A program inherits an ignored SIGCHLD from its parent. The system would then reap each child,
  // and waitpid would not find the child's result.
  std::signal(SIGCHLD, SIG_DFL);
}

int StopSignal() { return stop_signal; }

void InstallReloadSignal() {
  struct sigaction action = {};
  action.sa_handler = OnReloadSignal;
  sigaction(SIGHUP, &action, nullptr);
}

bool TakeReloadSignal() {
  // A signal before this line needs no second reload, because the reload begins after this line.
  return reload_signal.exchange(false);
}

}  // namespace kvcast::tools
