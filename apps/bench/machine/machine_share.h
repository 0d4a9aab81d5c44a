// MachineShare: the part of the machine's CPU time that other processes used during a benchmark,
// or that the hypervisor took away ("steal").
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvcast::bench {

// CPU times in clock ticks, summed over all cores.
struct CpuTimes {
  int64_t total = 0;   // with idle time
  int64_t busy = 0;    // of all processes and of interrupts, without `stolen`
  int64_t stolen = 0;  // time that the hypervisor gave to other machines
  int64_t own = 0;     // of this process and of its ended children
};

// Reads the line "cpu" of /proc/stat (proc(5)). nullopt: the text has no such line.
std::optional<CpuTimes> ParseCpuTimes(std::string_view stat);

class MachineShare {
 public:
  // If the sum of `others` and `stolen` is above this share, a benchmark must not judge its
  // targets.
  static constexpr double kMostForeign = 0.05;

  // Begins the measurement.
  MachineShare() : begin_(Now()) {}

  struct Shares {
    double others = 0;  // share that other processes used, from 0 to 1
    double stolen = 0;  // share that the hypervisor took away, from 0 to 1
    bool quiet() const { return others + stolen <= kMostForeign; }
  };
  // The shares since the beginning. nullopt: /proc/stat cannot be read.
  std::optional<Shares> Read() const;
  static Shares Between(const CpuTimes& begin, const CpuTimes& end);

 private:
  static std::optional<CpuTimes> Now();

  std::optional<CpuTimes> begin_;
};

}  // namespace kvcast::bench
