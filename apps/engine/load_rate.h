// Measures the speed of loads from host memory on this machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "apps/engine/engine_options.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

// Measures loads of random blocks through a TransferEngine with one copying thread. Each block has
// `block_bytes` bytes. Returns the median of a few runs, in bytes per second. The call takes about
// 50 ms. Not ok: no memory.
Result<double> MeasureLoadBandwidth(size_t block_bytes);

// Returns the bytes that a load of one token copies: the token's bytes in all groups except window
// groups. A load copies only one window of a window group, so these bytes do not count per token.
// Not ok: the model is unknown.
Result<double> LoadedBytesPerToken(const std::string& model);

// Sets load_rate to the measured rate, if the options have host memory and no rate. Not ok: the
// model is unknown, or no memory.
Status ResolveLoadRate(CacheOptions& options);

}  // namespace kvcast::tools
