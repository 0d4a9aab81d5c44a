// SPDX-License-Identifier: Apache-2.0
#include "apps/support/stop.h"

#include <unistd.h>

#include <csignal>

namespace kvcast::tools {
namespace {

volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t reload_signal = 0;

void OnSignal(int signal) {
  if (stop_signal != 0) _exit(128 + signal);
  stop_signal = signal;
}

void OnReloadSignal(int) { reload_signal = 1; }

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;  // without SA_RESTART, so that blocking calls return
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int StopSignal() { return stop_signal; }

void InstallReloadSignal() {
  struct sigaction action = {};
  action.sa_handler = OnReloadSignal;
  sigaction(SIGHUP, &action, nullptr);
}

bool TakeReloadSignal() {
  if (reload_signal == 0) return false;
  // A signal before this line needs no second reload, because the reload begins after this line.
  reload_signal = 0;
  return true;
}

}  // namespace kvcast::tools
