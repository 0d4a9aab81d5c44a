// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "router/service/metrics/samples.h"
#include "src/base/version.h"

namespace kvcast::router {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

void AddProcess(const char* name, const char* help, MetricType type, std::optional<double> value,
                std::vector<MetricFamily>& families) {
  if (value) AddValue(name, help, type, *value, families);
}

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

std::optional<double> CpuSeconds() {
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  return SecondsOf(usage.ru_utime) + SecondsOf(usage.ru_stime);
}

// A column of /proc/self/statm, in bytes.
std::optional<double> MemoryBytes(int column) {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  for (int i = 0; i <= column; ++i) statm >> pages;
  if (!statm) return std::nullopt;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::optional<double> OpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return std::nullopt;
  // One of the files is the directory itself.
  return static_cast<double>(std::distance(begin(files), end(files)) - 1);
}

std::optional<double> MaxFiles() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  return static_cast<double>(limit.rlim_cur);
}

// Returns a field of /proc/self/stat. `field`: its number in the manual page proc(5), at least 3.
// The parser begins after the program's name, because the name may contain blanks.
std::optional<double> StatField(int field) {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string word;
  constexpr int kFirst = 3;
  for (int i = kFirst; i <= field; ++i) fields >> word;
  double value = 0;
  if (!fields || !(std::istringstream(word) >> value)) return std::nullopt;
  return value;
}

// Seconds since the Unix epoch.
std::optional<double> StartSeconds() {
  constexpr int kStartTicks = 22;
  const auto ticks = StatField(kStartTicks);
  std::ifstream stat("/proc/stat");
  double boot = 0;
  for (std::string word; stat >> word;) {
    if (word == "btime" && stat >> boot) break;
  }
  if (!ticks || boot == 0) return std::nullopt;
  return boot + *ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

void AddProcessFamilies(std::vector<MetricFamily>& families) {
  constexpr auto kProcessGauge = MetricType::Gauge;
  constexpr int kThreadsField = 20;
  ClientMetric build;
  build.label = {{"version", std::string(Version())}, {"compiler", std::string(CompilerText())}};
  build.gauge.value = 1;
  families.push_back({"kvcast_build_info",
                      "Always 1; the labels give the release and the compiler of this program.",
                      kProcessGauge,
                      {std::move(build)}});
  AddProcess("process_cpu_seconds_total", "User and system CPU time spent in seconds.",
             MetricType::Counter, CpuSeconds(), families);
  AddProcess("process_resident_memory_bytes", "Resident memory size in bytes.", kProcessGauge,
             MemoryBytes(1), families);
  AddProcess("process_virtual_memory_bytes", "Virtual memory size in bytes.", kProcessGauge,
             MemoryBytes(0), families);
  AddProcess("process_open_fds", "Number of open file descriptors.", kProcessGauge, OpenFiles(),
             families);
  AddProcess("process_max_fds", "Maximum number of open file descriptors.", kProcessGauge,
             MaxFiles(), families);
  AddProcess("process_threads", "Number of threads.", kProcessGauge, StatField(kThreadsField),
             families);
  AddProcess("process_start_time_seconds",
             "Start time of the process since the Unix epoch in seconds.", kProcessGauge,
             StartSeconds(), families);
}

}  // namespace kvcast::router
