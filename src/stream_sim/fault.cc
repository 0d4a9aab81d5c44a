// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/fault.h"

#include <algorithm>

#include "src/stream_sim/random.h"

namespace kvcast::sim {
namespace {

constexpr uint64_t kStream = 0xFA;

struct Shape {
  const char* name;
  int64_t max_duration_ms;  // 0: the fault has no duration
  int64_t min_amount;
  int64_t max_amount;
};

constexpr Shape kShapes[kFaultKinds] = {
    {"drop_live", 3000, 1, 60},
    {"duplicate_live", 3000, 5, 50},
    {"reorder_live", 2000, 5, 50},
    {"truncate_live", 800, 5, 40},
    {"drop_replies", 3000, 2, 60},
    {"scramble_replies", 3000, 5, 50},
    {"delay_live", 3000, 5, 5000},
    {"slow_replies", 3000, 5, 800},
    {"pause_publisher", 6000, 0, 0},
    {"pause_follower", 4000, 0, 0},
    {"partition", 6000, 0, 0},
    {"cut_replies", 5000, 1, 20},
    {"break_replies", 3000, 2, 40},
    {"disconnect", 0, 0, 0},
    {"restart", 0, 0, 40},
    {"silent_restart", 0, 0, 120},
    {"burst", 0, 5, 60},
    {"burn", 0, 1, 4},
    {"clear", 0, 0, 0},
    {"clock_jump", 0, 100, 3600000},
    {"damage", 0, 1, 4},
    {"contradict", 0, 0, 0},
    {"oversize", 0, 0, 0},
    {"ask_snapshot", 0, 0, 0},
    {"restart_follower", 0, 0, 4000},
};

const Shape& ShapeOf(FaultKind kind) { return kShapes[static_cast<size_t>(kind)]; }

}  // namespace

const char* FaultName(FaultKind kind) { return ShapeOf(kind).name; }

std::string ToString(const Fault& fault) {
  std::string text = "t=" + std::to_string(fault.at_ms) + " ms publisher " +
                     std::to_string(fault.publisher) + " " + FaultName(fault.kind);
  if (ShapeOf(fault.kind).max_amount > 0) text += " " + std::to_string(fault.amount);
  if (fault.duration_ms > 0) text += " for " + std::to_string(fault.duration_ms) + " ms";
  return text;
}

std::vector<Fault> DrawFaults(uint64_t seed, int publishers, int64_t end_ms) {
  Random random(seed, kStream);
  std::vector<Fault> faults;
  const int64_t count = random.Between(4, 40);
  // Each run uses a random number of kinds. If this number is small, the same kinds often occur
  // together.
  const int64_t kinds = random.Between(1, kFaultKinds);
  const int64_t first_kind = random.Roll(kFaultKinds);
  for (int64_t i = 0; i < count; ++i) {
    Fault fault;
    fault.kind = static_cast<FaultKind>((first_kind + random.Roll(kinds) * 7) % kFaultKinds);
    const Shape& shape = ShapeOf(fault.kind);
    fault.publisher = static_cast<int>(random.Roll(publishers));
    fault.at_ms = random.Between(0, end_ms - shape.max_duration_ms - 1);
    // 30 % of the faults hit the publisher of the fault that was drawn before, at any time up to
    // 300 ms after that fault.
    if (!faults.empty() && random.Percent(30)) {
      fault.publisher = faults.back().publisher;
      fault.at_ms = std::min(fault.at_ms, faults.back().at_ms + random.Between(1, 300));
    }
    if (shape.max_duration_ms > 0) fault.duration_ms = random.Between(1, shape.max_duration_ms);
    fault.amount = random.Between(shape.min_amount, shape.max_amount);
    faults.push_back(fault);
  }
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at_ms < b.at_ms; });
  return faults;
}

}  // namespace kvcast::sim
