// HostCopyBackend: a CopyBackend for two pools that are both in host memory.
//
// With it, the whole offload path runs on a machine without a GPU: the "GPU" pool is host memory
// too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kvcast/core/status.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast {

struct HostCopyConfig {
  // Number of copy threads, 0 to 256. 0: half of the processors, but at least 1 and at most 4. Each
  // thread copies about 10 GB/s until the memory bandwidth is used up.
  int threads = 0;
  // False: memcpy. True: stores that bypass the CPU caches, with the widest vectors of this CPU.
  bool streaming = true;
};

// Creates the backend. The backend starts queued loads before queued stores. It has no events:
// `after` of Submit must be nullptr. If the system refuses threads, the backend copies with fewer
// threads. Errors: kInvalidArgument if `threads` is not in [0, 256]; kExhausted if no thread can
// start.
Result<std::unique_ptr<CopyBackend>> MakeHostCopyBackend(const HostCopyConfig& config = {});

}  // namespace kvcast
