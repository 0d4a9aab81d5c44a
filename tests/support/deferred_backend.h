// DeferredBackend: a copy backend that the test drives.
//
// A batch moves its bytes when the test calls Move or Finish, or when the engine waits for the
// batch. The test may end batches in any order. A batch may therefore read its source late, as a
// device may do. A batch may also fail and leave garbage in its target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include "kvcast/transfer/copy_backend.h"

namespace kvcast::testing {

class DeferredBackend final : public CopyBackend {
 public:
  struct Batch {
    CopyTicket ticket;
    CopyDirection direction;
    std::vector<CopyOp> ops;
    void* after = nullptr;
    bool moved = false;  // the bytes were moved at least once
    CopyState state = CopyState::kRunning;
  };
  static constexpr int kGarbage = 0xEE;

  std::string_view name() const override { return "deferred"; }

  Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops,
                            void* after) override {
    if (refuse_next > 0) {
      --refuse_next;
      return Status(StatusCode::kUnavailable, "refused");
    }
    batches.push_back({CopyTicket(next_ticket_++), direction, {ops.begin(), ops.end()}, after});
    return batches.back().ticket;
  }
  CopyState Poll(CopyTicket ticket) override {
    const size_t index = Find(ticket);
    const CopyState state = batches[index].state;
    if (state != CopyState::kRunning) batches.erase(batches.begin() + static_cast<long>(index));
    return state;
  }
  CopyState Wait(CopyTicket ticket) override {
    if (batches[Find(ticket)].state == CopyState::kRunning) Finish(Find(ticket));
    return Poll(ticket);
  }

  static void Run(const CopyOp& op) {
    for (uint32_t row = 0; row < op.rows; ++row) {
      std::memcpy(op.dst + row * op.dst_pitch, op.src + row * op.src_pitch, op.row_bytes);
    }
  }
  // Moves the bytes of batches[index]. The batch stays running and may move its bytes again.
  void Move(size_t index) {
    Reach(index);
    for (const CopyOp& op : batches[index].ops) Run(op);
    batches[index].moved = true;
  }
  void Finish(size_t index) {
    Move(index);
    batches[index].state = CopyState::kDone;
  }
  // Writes garbage to the targets instead of the data.
  void Fail(size_t index) {
    Reach(index);
    for (const CopyOp& op : batches[index].ops) {
      for (uint32_t row = 0; row < op.rows; ++row) {
        std::memset(op.dst + row * op.dst_pitch, kGarbage, op.row_bytes);
      }
    }
    batches[index].state = CopyState::kFailed;
  }
  void FinishAll() {
    for (size_t i = 0; i < batches.size(); ++i) {
      if (batches[i].state == CopyState::kRunning) Finish(i);
    }
  }

  std::vector<Batch> batches;  // submitted; Poll or Wait removes an ended batch
  int refuse_next = 0;         // number of submissions to refuse
  // Runs the device up to the event that a batch waits for. If `reach` is not set, there is no
  // device.
  std::function<void(void* event)> reach;

 private:
  void Reach(size_t index) {
    if (reach) reach(batches[index].after);
  }
  size_t Find(CopyTicket ticket) const {
    size_t index = 0;
    while (batches[index].ticket != ticket) ++index;
    return index;
  }

  uint64_t next_ticket_ = 0;
};

}  // namespace kvcast::testing
