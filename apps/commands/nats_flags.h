// The NATS flags on the command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include "apps/commands/nats_options.h"

namespace kvcast::tools {

void AddRelayNats(CLI::App& sub, NatsFlags& nats);
void AddRouterNats(CLI::App& sub, NatsFlags& nats);

}  // namespace kvcast::tools
