// HostCopyBackend: copies between pools that are both plain memory.
//
// On a machine without a GPU the whole offload path runs with it: the "GPU" pool is memory as well.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kvcast/core/status.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast {

struct HostCopyConfig {
  // 0: half of the processors, 1 to 4. Each moves some 10 GB/s until the memory is busy.
  int threads = 0;
  // False: memcpy. True: stores that bypass the caches, with the widest vectors of this CPU.
  bool streaming = true;
};

// Loads are taken before stores. Events to wait for do not exist here: `after` must be nullptr.
// Not ok: threads out of [0, 256].
Result<std::unique_ptr<CopyBackend>> MakeHostCopyBackend(const HostCopyConfig& config = {});

}  // namespace kvcast
