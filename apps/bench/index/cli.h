// The command line of the index benchmarks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace kvcast::bench {

// Adds the subcommands to `bench`. A parsed subcommand sets `command` to its function. `command`
// must outlive `bench`.
void AddIndexBenches(CLI::App& bench, std::function<int()>& command);

}  // namespace kvcast::bench
