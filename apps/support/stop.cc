// SPDX-License-Identifier: Apache-2.0
#include "apps/support/stop.h"

#include <unistd.h>

#include <csignal>

namespace kvcast::tools {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void OnSignal(int signal) {
  if (stop_signal != 0) _exit(128 + signal);
  stop_signal = signal;
}

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;  // without SA_RESTART, so that blocking calls return
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int StopSignal() { return stop_signal; }

}  // namespace kvcast::tools
