// What loads from host memory cost on this machine, measured.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "apps/engine/engine_options.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

// Bytes per second of loads of random blocks of so many bytes, through a TransferEngine with one
// copying thread; the median of a few, some 50 ms. Not ok: no memory.
Result<double> MeasureLoadBandwidth(size_t block_bytes);

// Bytes that a load of one token copies. A window group's share ends with its window, so it is what
// the other groups hold of a token. Not ok: there is no such model.
Result<double> LoadedBytesPerToken(const std::string& model);

// Sets load_rate to what was measured, if the options name no rate and have host memory.
Status ResolveLoadRate(CacheOptions& options);

}  // namespace kvcast::tools
