// CopyBackend: what moves bytes between a GPU pool and host memory.
//
// Backends here: HostCopyBackend (host_copy_backend.h), where the GPU pool is plain memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"

namespace kvcast {

enum class CopyDirection : uint8_t {
  kLoad,   // host to GPU
  kStore,  // GPU to host
};

// `rows` rows of `row_bytes`, from `src` to `dst`. A pitch is the distance from the start of a row
// to the start of the next, and means nothing if there is one row.
struct CopyOp {
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
  size_t row_bytes = 0;
  size_t src_pitch = 0;
  size_t dst_pitch = 0;
  uint32_t rows = 1;

  size_t bytes() const { return row_bytes * rows; }
};

// Names a batch that a backend was given.
using CopyTicket = StrongId<struct CopyTicketTag, uint64_t>;

enum class CopyState : uint8_t {
  kRunning,
  kDone,    // every byte is where it belongs
  kFailed,  // any byte of any destination may be wrong
};

// Thread-compatible: one thread submits and polls.
class CopyBackend {
 public:
  virtual ~CopyBackend() = default;

  virtual std::string_view name() const = 0;

  // True: from now on any thread of the backend calls `tell` after a batch has ended, and Poll need
  // not be called in between. `tell` is quick and calls nothing of the backend. Asked before the
  // first batch, at most once.
  virtual bool TellEnds(std::function<void()> tell) {
    static_cast<void>(tell);
    return false;
  }

  // Starts the copies of a batch, in any order, beside those of other batches. `ops` is read before
  // the call returns. No destination of the batch overlaps another destination or source of it.
  //
  // after: the copies read no source and write no destination before this event, one of the
  // backend's device (CUDA: cudaEvent_t); nullptr: now.
  //
  // Not ok: nothing of the batch was or will be copied.
  virtual Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops,
                                    void* after) = 0;

  // Once the answer is not kRunning, the batch touches no memory any more, its ticket is gone and
  // must not be asked for again.
  virtual CopyState Poll(CopyTicket ticket) = 0;
  // Blocks until Poll would not answer kRunning, and answers that.
  virtual CopyState Wait(CopyTicket ticket) = 0;
};

}  // namespace kvcast
