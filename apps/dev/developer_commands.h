// The subcommands that check and measure kvcast itself, with their help texts. The program
// kvcast-dev has these subcommands. kvcast runs kvcast-dev for them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcast::tools {

struct DeveloperCommand {
  const char* name;
  const char* help;
};

inline constexpr DeveloperCommand kBenchCommand = {"bench", "measure this machine"};
inline constexpr DeveloperCommand kConformanceCommand = {
    "conformance", "compare recorded engine data with this code"};
inline constexpr DeveloperCommand kSimCommand = {
    "sim", "simulate publishers, a faulty network and an index, and check the stream's guarantees"};
inline constexpr DeveloperCommand kDeveloperCommands[] = {kBenchCommand, kConformanceCommand,
                                                          kSimCommand};

}  // namespace kvcast::tools
