// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "apps/bench/copy/bench_copy.h"
#include "apps/dev/dev_commands.h"
#include "kvcast/cuda/cuda_device.h"
#include "src/transfer/stream_copy.h"

namespace kvcast::tools {
namespace {

using Json = nlohmann::json;

constexpr size_t kMemcpyTargetFrom = 32768;  // the smallest fragment with a memcpy target, in bytes
constexpr double kMemcpyTarget = 1.5;
constexpr double kPlannerTargetNs = 2;

int ListBackends(bool json) {
  const std::string stores(transfer::WidestStreamCopy().name);
  const auto device = OpenCudaDevice();
  const CudaDeviceInfo gpu = device.ok() ? InfoOf(*device) : CudaDeviceInfo{};
  if (json) {
    Json cuda = {{"name", "cuda"}, {"runs", device.ok()}};
    if (device.ok()) {
      cuda.update({{"gpu", gpu.name}, {"copies_by", gpu.copy_call}});
    } else {
      cuda["reason"] = device.status().message();
    }
    const Json host = {{"name", "host"}, {"runs", true}, {"stores", stores}};
    std::printf("%s\n", Json{{"backends", {host, cuda}}}.dump().c_str());
    return 0;
  }
  std::printf("host    runs here; streaming stores: %s\n", stores.c_str());
  if (device.ok()) {
    std::printf("cuda    runs here; %s, sm_%d, copies by %s\n", gpu.name.c_str(),
                gpu.compute_capability, gpu.copy_call.c_str());
  } else {
    std::printf("cuda    does not run here: %s; the host backend is used\n",
                device.status().message().c_str());
  }
  return 0;
}

std::string NameOf(size_t bytes) {
  return bytes >= (1u << 20) ? std::to_string(bytes >> 20) + " MiB"
                             : std::to_string(bytes >> 10) + " KiB";
}

// Returns the exit code, or nullopt if the host backend must run.
std::optional<int> RunOnGpu(const CopyBenchOptions& options) {
  if (options.device == "host") return std::nullopt;
  const auto device = OpenCudaDevice();
  if (device.ok()) return RunCudaBenchCommand(*device, options);
  const std::string& reason = device.status().message();
  if (options.device == "cuda" || options.questions) return Fail("--device cuda: " + reason);
  std::printf("# no copies over CUDA: %s; the host backend is used\n", reason.c_str());
  return std::nullopt;
}

}  // namespace

int RunCopyBenchCommand(const CopyBenchOptions& options) {
  if (options.list) return ListBackends(options.json);
  if (const auto exit_code = RunOnGpu(options)) return *exit_code;
  CopyBenchConfig config;
  config.payload_bytes = static_cast<size_t>(options.mib) << 20;
  config.cycles = static_cast<int>(options.cycles);
  config.threads = static_cast<int>(options.threads);
  config.spread = static_cast<int>(options.spread);
  if (config.threads == 0) {
    config.threads = std::max(1u, std::min(4u, std::thread::hardware_concurrency() / 2));
  }
  std::printf(
      "# host copies, %d thread(s), %lld MiB in random blocks; pools of %d x that size; median of "
      "%d cycles\n",
      config.threads, static_cast<long long>(options.mib), config.spread, config.cycles);
  std::printf(
      "# ratio: our speed / the speed of our contiguous copy (same threads, same cycle); "
      "x streaming: our speed / the speed of plain streaming stores\n");
  std::printf("%9s %8s %7s %7s %13s %10s %8s %9s\n", "fragment", "ceiling", "ratio", "target",
              "p10..p90", "x streaming", "memcpy", "x memcpy");
  Json cells = Json::array();
  Json targets = Json::array();
  const auto add_target = [&targets](const std::string& name, double figure, double target,
                                     const char* unit, bool met) {
    targets.push_back(
        {{"name", name}, {"figure", figure}, {"target", target}, {"unit", unit}, {"met", met}});
  };
  const Status status = RunCopyBench(config, [&](const CopyBenchCell& cell) {
    const std::string name = NameOf(cell.fragment_bytes);
    const double target = CopyTarget(cell.fragment_bytes);
    std::printf("%9s %6.1f G %7.3f %7.2f %6.3f..%5.3f %11.3f %8.3f %9.2f\n", name.c_str(),
                cell.ceiling / 1e9, cell.ours, target, cell.ours_p10, cell.ours_p90,
                cell.ours_to_streaming, cell.plain, cell.ours_to_plain);
    std::fflush(stdout);
    add_target(name + " of contiguous", cell.ours, target, "ratio", cell.ours >= target);
    if (cell.fragment_bytes >= kMemcpyTargetFrom) {
      add_target(name + " of memcpy", cell.ours_to_plain, kMemcpyTarget, "ratio",
                 cell.ours_to_plain >= kMemcpyTarget);
    }
    cells.push_back({{"fragment_bytes", cell.fragment_bytes},
                     {"ceiling_bytes_per_second", cell.ceiling},
                     {"ratio", cell.ours},
                     {"ratio_p10", cell.ours_p10},
                     {"ratio_p90", cell.ours_p90},
                     {"memcpy_ratio", cell.plain},
                     {"to_plain_streaming", cell.ours_to_streaming},
                     {"to_memcpy", cell.ours_to_plain}});
  });
  if (!status.ok()) return Fail(status);
  const PlannerBench planner = RunPlannerBench();
  const double nanoseconds = planner.seconds_per_copy * 1e9;
  std::printf("planner: %.2f ns a copy, target %.0f (%zu copies)\n", nanoseconds, kPlannerTargetNs,
              planner.copies);
  add_target("planner", nanoseconds, kPlannerTargetNs, "ns/copy", nanoseconds <= kPlannerTargetNs);
  if (options.json) {
    const Json result = {{"name", "copy"},
                         {"backend", "host"},
                         {"threads", config.threads},
                         {"spread", config.spread},
                         {"payload_bytes", config.payload_bytes},
                         {"cells", cells},
                         {"targets", targets}};
    std::printf("%s\n", result.dump().c_str());
  }
  return 0;
}

}  // namespace kvcast::tools
