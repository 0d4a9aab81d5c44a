// Ctrl-C and SIGTERM as a flag that loops look at.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcast::tools {

// Installs handlers for SIGINT and SIGTERM. A second signal ends the process at once.
void InstallStopSignals();
// The signal that asked to stop, or 0.
int StopSignal();

}  // namespace kvcast::tools
