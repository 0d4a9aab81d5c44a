// CopyBackend: the interface of a component that copies bytes between a GPU pool and host memory.
//
// Implementations: HostCopyBackend (host_copy_backend.h), in which the GPU pool is host memory too,
// and CudaCopyBackend (cuda_copy_backend.h).
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

// Copies `rows` rows of `row_bytes` bytes from `src` to `dst`. A pitch is the distance in bytes
// from the start of a row to the start of the next row; it is unused if there is one row. The
// pointers are borrowed.
struct CopyOp {
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
  size_t row_bytes = 0;
  size_t src_pitch = 0;
  size_t dst_pitch = 0;
  uint32_t rows = 1;

  size_t bytes() const { return row_bytes * rows; }
};

// Identifies a submitted batch of one backend.
using CopyTicket = StrongId<struct CopyTicketTag, uint64_t>;

// State of a batch.
enum class CopyState : uint8_t {
  kRunning,
  kDone,  // every byte is copied
  // Any byte of any destination may be wrong.
  kFailed,
};

// Thread-compatible: one thread at a time submits and polls.
class CopyBackend {
 public:
  virtual ~CopyBackend() = default;

  virtual std::string_view name() const = 0;

  // Requests a notification. True: from then on, a thread of the backend calls `tell` after each
  // batch has ended, and the caller need not call Poll before that. `tell` must return quickly and
  // must not call the backend. The caller may request this at most once, before the first batch.
  // False: the backend has no notification.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): implementations keep it.
  virtual bool TellEnds(std::function<void()> /*tell*/) { return false; }

  // Starts the copies of a batch, in any order, and concurrently with the copies of other batches.
  // The call reads `ops` before it returns. No destination of the batch may overlap another
  // destination or a source of the batch.
  //
  // `after`: an event of the backend's device (CUDA: cudaEvent_t), borrowed for the call. The
  // copies access no source and no destination before this event. nullptr: no event.
  //
  // Errors: kInvalidArgument, kExhausted or kUnavailable. No byte of the batch was then copied, and
  // none will be copied.
  virtual Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops,
                                    void* after) = 0;

  // Returns the state of a batch. If the result is not kRunning, the batch no longer accesses
  // memory, and its ticket is invalid: the caller must not use it again.
  virtual CopyState Poll(CopyTicket ticket) = 0;
  // Blocks until the batch has ended. Returns the state that Poll would return, and invalidates the
  // ticket.
  virtual CopyState Wait(CopyTicket ticket) = 0;
};

}  // namespace kvcast
