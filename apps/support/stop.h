// Ctrl-C and SIGTERM as a flag that loops check.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcast::tools {

// Installs handlers for SIGINT and SIGTERM, and ignores SIGPIPE. A second signal ends the process
// immediately.
void InstallStopSignals();
// The signal that requested the stop, or 0.
int StopSignal();

}  // namespace kvcast::tools
