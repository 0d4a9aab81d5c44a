// Ctrl-C, SIGTERM and SIGHUP as flags that loops check.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcast::tools {

// Installs handlers for SIGINT and SIGTERM, and ignores SIGPIPE. A second signal ends the process
// immediately. SIGCHLD gets its default action, so that the process can wait for its children.
void InstallStopSignals();
// The signal that requested the stop, or 0.
int StopSignal();

// Installs a handler for SIGHUP. Without this call, SIGHUP ends the process.
void InstallReloadSignal();
// True: SIGHUP has arrived since the previous call.
bool TakeReloadSignal();

}  // namespace kvcast::tools
