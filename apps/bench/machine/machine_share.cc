// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/machine/machine_share.h"

#include <sys/times.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace kvcast::bench {

std::optional<CpuTimes> ParseCpuTimes(std::string_view stat) {
  std::istringstream text{std::string(stat)};
  std::string name;
  enum Field { kUser, kNice, kSystem, kIdle, kIoWait, kIrq, kSoftIrq, kSteal, kFields };
  std::array<int64_t, kFields> ticks{};
  if (!(text >> name) || name != "cpu") return std::nullopt;
  for (int64_t& field : ticks) {
    if (!(text >> field) || field < 0) return std::nullopt;
  }
  CpuTimes times;
  times.busy = ticks[kUser] + ticks[kNice] + ticks[kSystem] + ticks[kIrq] + ticks[kSoftIrq];
  times.stolen = ticks[kSteal];
  times.total = times.busy + times.stolen + ticks[kIdle] + ticks[kIoWait];
  return times;
}

std::optional<CpuTimes> MachineShare::Now() {
  std::ifstream file("/proc/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  std::optional<CpuTimes> times = ParseCpuTimes(stat);
  if (!times) return std::nullopt;
  struct tms own {};
  if (::times(&own) == static_cast<clock_t>(-1)) return std::nullopt;
  times->own = own.tms_utime + own.tms_stime + own.tms_cutime + own.tms_cstime;
  return times;
}

MachineShare::Shares MachineShare::Between(const CpuTimes& begin, const CpuTimes& end) {
  const auto total = static_cast<double>(std::max<int64_t>(end.total - begin.total, 1));
  const int64_t others = (end.busy - begin.busy) - (end.own - begin.own);
  // The two clocks round differently, so a difference may be below 0.
  const auto share = [total](int64_t ticks) {
    return static_cast<double>(std::max<int64_t>(ticks, 0)) / total;
  };
  return {.others = share(others), .stolen = share(end.stolen - begin.stolen)};
}

std::optional<MachineShare::Shares> MachineShare::Read() const {
  const std::optional<CpuTimes> end = Now();
  if (!begin_ || !end) return std::nullopt;
  return Between(*begin_, *end);
}

}  // namespace kvcast::bench
