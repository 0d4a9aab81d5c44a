// The command line of the index's benchmarks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace kvcast::bench {

// Adds the subcommands to `bench`. Parsing one sets `command` to what runs it.
void AddBenches(CLI::App& bench, std::function<int()>& command);

}  // namespace kvcast::bench
