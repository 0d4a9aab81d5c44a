// `kvcast bench copy` on a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/bench/copy/copy_bench.h"
#include "apps/dev/dev_commands.h"
#include "apps/support/byte_size.h"
#include "apps/support/ratio_chart.h"
#include "kvcast/cuda/cuda_device.h"

namespace kvcast::tools {
namespace {

using Json = nlohmann::json;
using cuda::CopyBenchCell;
using cuda::CopyBenchMethod;

// Row sizes of a quick run, in bytes.
constexpr size_t kQuickRowBytes[] = {4096, 16384, 32768, 65536, 262144, 2097152};
constexpr int kQuickLaunches = 100;  // kernel launches of one measurement of the slowdown
constexpr int kLaunches = 400;
constexpr double kSlowdownTargetEngine = 1.05;
constexpr double kSlowdownTargetKernel = 1.10;
constexpr double kBothWaysTarget = 0.97;
constexpr size_t kBothWaysFrom = size_t{128} << 10;  // the target is for rows of at least this size

const char* NameOf(CopyDirection direction) {
  return direction == CopyDirection::kLoad ? "H2D" : "D2H";
}

std::string NameOf(const CopyBenchCell& cell) {
  const cuda::CopyBenchShape& shape = cell.shape;
  std::string name = NameOf(shape.direction);
  if (shape.max_blocks != SIZE_MAX) name += " " + std::to_string(shape.max_blocks) + " blocks";
  if (shape.rows > 1) name += " " + std::to_string(shape.rows) + " rows";
  name += " " + ByteSizeName(shape.row_bytes);
  if (shape.order == cuda::BlockOrder::kRunsOfFour) name += ", runs of 4";
  if (shape.order == cuda::BlockOrder::kSequential) name += ", in order";
  return name;
}

bool MatchesBestRival(const CopyBenchCell& cell) {
  return cell.ours() >= (1 - cuda::kRivalMargin) * cell.best_rival().ratio;
}

class CudaReport {
 public:
  void Add(const CopyBenchCell& cell) {
    if (cells_.empty()) {
      std::printf("%-28s %8s %6s %7s %7s %-12s %7s %s\n", "", "ceiling", "drift", "ours", "target",
                  "by", "rival", "best rival");
    }
    cells_.push_back(cell);
    const bool is_void = cell.drift > cuda::kMaxDrift;
    std::printf("%-28s %6.1f G %5.1f%% %7.3f %7s %-12s %7.3f %s%s%s\n", NameOf(cell).c_str(),
                cell.ceiling / 1e9, cell.drift * 100, cell.ours(), TargetText(cell).c_str(),
                cell.chosen.c_str(), cell.best_rival().ratio, cell.best_rival().name.c_str(),
                MatchesBestRival(cell) ? "" : "  BETTER",
                is_void ? "  void: the ceiling drifts" : "");
    std::fflush(stdout);
    Json methods = Json::array();
    for (const CopyBenchMethod& method : cell.methods) {
      methods.push_back({{"name", method.name},
                         {"rival", method.rival},
                         {"ratio", method.ratio},
                         {"p10", method.p10},
                         {"p90", method.p90}});
    }
    json_cells_.push_back({{"name", NameOf(cell)},
                           {"direction", NameOf(cell.shape.direction)},
                           {"fragment_bytes", cell.shape.row_bytes},
                           {"rows", cell.shape.rows},
                           {"payload_bytes", cell.payload_bytes},
                           {"ceiling_bytes_per_second", cell.ceiling},
                           {"drift", cell.drift},
                           {"void", is_void},
                           {"cycles", cell.cycles},
                           {"path", cell.chosen},
                           {"methods", std::move(methods)}});
    if (cell.target > 0) AddTarget(NameOf(cell), cell.ours(), cell.target, "ratio", true);
    AddTarget(NameOf(cell) + " to the best rival", cell.ours() / cell.best_rival().ratio,
              1 - cuda::kRivalMargin, "ratio", true);
  }

  void Add(const cuda::BothWaysResult& both) {
    const std::string name = "both ways " + ByteSizeName(both.row_bytes);
    std::printf("%-28s %6.1f G        %7.3f                      %7.3f one batch each way\n",
                name.c_str(), both.ceiling / 1e9, both.ours, both.batch);
    if (both.row_bytes >= kBothWaysFrom) {
      AddTarget(name, both.ours, kBothWaysTarget, "ratio", true);
    }
  }

  void Add(const cuda::SlowdownResult& slowdown) {
    std::printf("%-14s %7.1f us, beside %-38s p50 x %.3f, p99 x %.3f\n", slowdown.work.c_str(),
                slowdown.idle_p50 * 1e6, slowdown.copies.c_str(), slowdown.p50, slowdown.p99);
    slowdowns_.push_back({{"work", slowdown.work},
                          {"copies", slowdown.copies},
                          {"idle_p50_seconds", slowdown.idle_p50},
                          {"p50", slowdown.p50},
                          {"p99", slowdown.p99}});
    const bool engine = slowdown.copies.starts_with("copy engine");
    const bool ours = engine || slowdown.copies.starts_with("kernel as calibrated") ||
                      slowdown.copies.starts_with("staged");
    if (ours) {
      AddTarget(slowdown.work + " beside " + slowdown.copies + ", p99", slowdown.p99,
                engine ? kSlowdownTargetEngine : kSlowdownTargetKernel, "ratio", false);
    }
  }

  // Prints the number of met targets, the sums of the ratios, and the missed targets.
  void PrintSummary() const {
    const auto met = std::ranges::count_if(targets_, [](const Json& t) { return t["met"]; });
    double ours = 0;
    double rivals = 0;
    for (const CopyBenchCell& cell : cells_) {
      ours += cell.ours();
      rivals += cell.best_rival().ratio;
    }
    std::printf(
        "\n%zd of %zu targets met; sum of ratios: ours %.2f, best rival of each cell %.2f\n",
        static_cast<ssize_t>(met), targets_.size(), ours, rivals);
    for (const Json& target : targets_) {
      if (target["met"]) continue;
      std::printf("  missed: %s %.3f, target %.3f\n",
                  target["name"].get_ref<const std::string&>().c_str(),
                  target["figure"].get<double>(), target["target"].get<double>());
    }
  }

  Json ToJson(const CudaDeviceInfo& info) const {
    return {{"name", "copy"},
            {"backend", "cuda"},
            {"gpu", info.name},
            {"driver_version", info.driver_version},
            {"copies_by", info.copy_call},
            {"cells", json_cells_},
            {"slowdowns", slowdowns_},
            {"targets", targets_}};
  }

  std::string Picture(const std::string& gpu) const {
    std::vector<RatioPanel> panels;
    for (const auto direction : {CopyDirection::kLoad, CopyDirection::kStore}) {
      RatioPanel panel{.title = std::string(NameOf(direction)) + ", random blocks", .lines = {}};
      RatioLine ours{.name = "kvcast", .color = "#0b6"};
      RatioLine rival{.name = "best rival of each size", .color = "#c33"};
      RatioLine batch{.name = "one batch", .color = "#36c", .dashed = true};
      RatioLine target{.name = "target", .color = "#999", .dashed = true};
      for (const CopyBenchCell& cell : cells_) {
        const cuda::CopyBenchShape& shape = cell.shape;
        if (shape.direction != direction || shape.rows > 1 || shape.max_blocks != SIZE_MAX ||
            shape.order != cuda::BlockOrder::kRandom) {
          continue;
        }
        ours.points.emplace_back(shape.row_bytes, cell.ours());
        rival.points.emplace_back(shape.row_bytes, cell.best_rival().ratio);
        target.points.emplace_back(shape.row_bytes, cell.target);
        for (const CopyBenchMethod& method : cell.methods) {
          if (method.name == "one batch") batch.points.emplace_back(shape.row_bytes, method.ratio);
        }
      }
      panel.lines = {ours, rival, batch, target};
      panels.push_back(std::move(panel));
    }
    return RatioChartSvg("Share of a plain pinned copy, by size of fragment: " + gpu, panels);
  }

 private:
  static std::string TargetText(const CopyBenchCell& cell) {
    if (cell.target == 0) return "-";
    char text[16];
    std::snprintf(text, sizeof(text), "%.2f", cell.target);
    return text;
  }
  void AddTarget(const std::string& name, double figure, double target, const char* unit,
                 bool at_least) {
    targets_.push_back({{"name", name},
                        {"figure", figure},
                        {"target", target},
                        {"unit", unit},
                        {"met", at_least ? figure >= target : figure <= target}});
  }

  std::vector<CopyBenchCell> cells_;
  Json json_cells_ = Json::array();
  Json slowdowns_ = Json::array();
  Json targets_ = Json::array();
};

cuda::CopyBenchConfig ConfigOf(const CopyBenchOptions& options) {
  cuda::CopyBenchConfig config;
  config.payload_bytes = static_cast<size_t>(options.mib) << 20;
  config.max_cycles = static_cast<int>(options.cycles);
  if (options.quick) {
    config.max_seconds = 1;
    std::erase_if(config.shapes, [](const cuda::CopyBenchShape& shape) {
      return shape.rows > 1 || shape.max_blocks != SIZE_MAX ||
             shape.order != cuda::BlockOrder::kRandom ||
             std::ranges::find(kQuickRowBytes, shape.row_bytes) == std::end(kQuickRowBytes);
    });
  }
  return config;
}

Status Measure(const CudaDevice& device, const CopyBenchOptions& options, CudaReport& report) {
  const cuda::CopyBenchConfig config = ConfigOf(options);
  const auto add = [&report](const auto& result) { report.Add(result); };
  Status status = RunCudaCopyBench(device, config, add);
  if (!status.ok()) return status;
  const auto both = RunBothWays(device, config.payload_bytes, config.max_cycles);
  if (!both.ok()) return both.status();
  std::ranges::for_each(*both, add);
  const auto slowdowns = RunSlowdown(device, options.quick ? kQuickLaunches : kLaunches);
  if (!slowdowns.ok()) return slowdowns.status();
  std::ranges::for_each(*slowdowns, add);
  return {};
}

int Ask(const CudaDevice& device, const CopyBenchOptions& options) {
  Json answers = Json::array();
  const Status status = RunCudaQuestions(
      device, static_cast<size_t>(options.mib) << 20, [&](const std::string& line) {
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
        const size_t number_end = line.find(' ');
        answers.push_back({{"question", std::stoi(line.substr(0, number_end))},
                           {"answer", line.substr(number_end + 1)}});
      });
  if (!status.ok()) return Fail(status);
  if (!options.json) return 0;
  const CudaDeviceInfo info = InfoOf(device);
  const Json report = {{"name", "copy questions"},
                       {"gpu", info.name},
                       {"driver_version", info.driver_version},
                       {"answers", answers}};
  std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace

int RunCudaBenchCommand(const CudaDevice& device, const CopyBenchOptions& options) {
  const CudaDeviceInfo info = InfoOf(device);
  if (options.questions) return Ask(device, options);
  std::printf("# %s, driver %d, copies by %s; %lld MiB of blocks in pinned host memory\n",
              info.name.c_str(), info.driver_version, info.copy_call.c_str(),
              static_cast<long long>(options.mib));
  std::printf(
      "# ratio: our speed / the speed of plain pinned copies just before and just after our "
      "copy\n");
  CudaReport report;
  if (const Status status = Measure(device, options, report); !status.ok()) return Fail(status);
  if (!options.svg.empty()) {
    std::ofstream file(options.svg);
    file << report.Picture(info.name);
    if (!file.good()) return Fail("--svg: cannot write " + options.svg);
  }
  report.PrintSummary();
  if (options.json) std::printf("%s\n", report.ToJson(info).dump().c_str());
  return 0;
}

}  // namespace kvcast::tools
