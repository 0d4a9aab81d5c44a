// ActiveFaults: the faults of one link that are active now.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "src/stream_sim/agenda.h"
#include "src/stream_sim/fault.h"

namespace kvcast::sim {

class ActiveFaults {
 public:
  explicit ActiveFaults(const Agenda& agenda) : agenda_(agenda) {}

  // Starts a fault with a duration. If a fault of this kind is already active, the fault gets the
  // new amount and the later of the two ends.
  void Begin(const Fault& fault) {
    const int64_t until_ms = agenda_.now_ms() + fault.duration_ms;
    Window& active = window(fault.kind);
    active = {std::max(active.until_ms, until_ms), fault.amount};
    // A delayed message may arrive up to `amount` ms after the end of the fault.
    if (fault.kind == FaultKind::kDelayLive) trouble_until_ms_ += fault.amount;
  }
  // The amount of the fault; 0 if the fault is not active.
  int64_t Amount(FaultKind kind) const {
    const Window& active = window(kind);
    return agenda_.now_ms() < active.until_ms ? active.amount : 0;
  }
  // The end of the latest fault of this kind.
  int64_t until_ms(FaultKind kind) const { return window(kind).until_ms; }
  bool Lasts(FaultKind kind) const { return agenda_.now_ms() < until_ms(kind); }

  // The link counts as faulty until `until_ms`, or later.
  void NoteTrouble(int64_t until_ms) { trouble_until_ms_ = std::max(trouble_until_ms_, until_ms); }
  int64_t trouble_until_ms() const { return trouble_until_ms_; }

 private:
  struct Window {
    int64_t until_ms = -1;
    int64_t amount = 0;
  };

  Window& window(FaultKind kind) { return windows_[static_cast<size_t>(kind)]; }
  const Window& window(FaultKind kind) const { return windows_[static_cast<size_t>(kind)]; }

  const Agenda& agenda_;
  std::array<Window, kFaultKinds> windows_;
  int64_t trouble_until_ms_ = -1000;
};

}  // namespace kvcast::sim
