// `kvcast sim` as a separate program.
//
// usage: kvcast_sim_main [SEEDS [THREADS]]
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "apps/dev/dev_commands.h"

int main(int argc, char** argv) {
  kvcast::tools::SimOptions options;
  if (argc > 1) options.seeds = argv[1];
  if (argc > 2) options.threads = std::stoll(argv[2]);
  return kvcast::tools::RunSim(options);
}
