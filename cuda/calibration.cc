// SPDX-License-Identifier: Apache-2.0
#include "cuda/calibration.h"

#include <algorithm>
#include <array>
#include <limits>

#include "cuda/pieces.h"

namespace kvcast::cuda {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kProbeCopies = 2048;
// A copy of this size leaves the link almost idle.
constexpr size_t kSmallBytes = kKiB;
constexpr uint32_t kRows = 32;
constexpr size_t kSmallPieces = 8192;
constexpr std::array kBlocks = {1, 2, 4, 6, 8};
// The smallest number of thread blocks that reaches this fraction of the best rate is chosen.
constexpr double kFullRate = 0.97;

double AsDouble(size_t n) { return static_cast<double>(n); }

class Calibrator {
 public:
  explicit Calibrator(const MeasureProbe& measure) : measure_(measure) {}

  // Returns 0 after the first failure.
  double Seconds(const Probe& probe) {
    if (!status_.ok()) return 0;
    const auto seconds = measure_(probe);
    if (!seconds.ok()) {
      status_ = seconds.status();
    } else if (!(*seconds > 0)) {
      status_ = {StatusCode::kUnavailable, "a timed copy took no time"};
    } else {
      return *seconds;
    }
    return 0;
  }
  const Status& status() const { return status_; }

  void MeasureEngine(bool has_rows, CudaCopyCosts& costs) {
    const Probe large{.row_bytes = kMaxProbeBytes};
    costs.engine_start = Seconds({.row_bytes = kSmallBytes});
    costs.link_rate = AsDouble(large.bytes()) / WithoutStart(Seconds(large), costs.engine_start);
    costs.engine_per_copy = PerCopy({.copies = kProbeCopies, .row_bytes = kSmallBytes},
                                    costs.engine_start, kProbeCopies);
    costs.engine_start = std::max(costs.engine_start - costs.engine_per_copy, 0.0);
    costs.engine_per_row = std::numeric_limits<double>::infinity();
    if (!has_rows) return;
    const size_t copies = kProbeCopies / kRows;
    const Probe rows{
        .kind = ProbeKind::kEngineRows, .copies = copies, .rows = kRows, .row_bytes = kSmallBytes};
    costs.engine_per_row =
        PerCopy(rows, costs.engine_start + AsDouble(copies) * costs.engine_per_copy, kProbeCopies);
  }

  void MeasureKernel(int blocks, CudaCopyCosts& costs) {
    costs.kernel_start =
        Seconds({.kind = ProbeKind::kKernel, .row_bytes = kPieceAlignment, .blocks = 1});
    ChooseBlocks(blocks, costs);
    const Probe small{.kind = ProbeKind::kKernel,
                      .copies = kSmallPieces,
                      .row_bytes = kKiB,
                      .blocks = costs.kernel_blocks};
    costs.kernel_per_piece = PerCopy(small, costs.kernel_start, kSmallPieces);
    Probe device = LargeKernel(costs.kernel_blocks);
    device.kind = ProbeKind::kDeviceKernel;
    costs.device_rate =
        AsDouble(device.bytes()) / WithoutStart(Seconds(device), costs.kernel_start);
  }

 private:
  static Probe LargeKernel(int blocks) {
    return {.kind = ProbeKind::kKernel,
            .copies = kProbeCopies,
            .row_bytes = kMaxPieceBytes,
            .blocks = blocks};
  }

  // Returns the time without the start cost, but at least a tenth of the time, so that the result
  // is never 0.
  static double WithoutStart(double seconds, double start) {
    return std::max(seconds - start, seconds / 10);
  }
  double PerCopy(const Probe& probe, double start, size_t copies) {
    return std::max(Seconds(probe) - start, 0.0) / AsDouble(copies);
  }

  void ChooseBlocks(int blocks, CudaCopyCosts& costs) {
    const auto rate_of = [&](int n) {
      return AsDouble(LargeKernel(n).bytes()) /
             WithoutStart(Seconds(LargeKernel(n)), costs.kernel_start);
    };
    if (blocks > 0) {
      costs.kernel_blocks = blocks;
      costs.kernel_rate = rate_of(blocks);
      return;
    }
    std::array<double, kBlocks.size()> rates{};
    std::transform(kBlocks.begin(), kBlocks.end(), rates.begin(), rate_of);
    const double best = *std::max_element(rates.begin(), rates.end());
    const auto enough = std::find_if(rates.begin(), rates.end(),
                                     [best](double rate) { return rate >= kFullRate * best; });
    costs.kernel_blocks = kBlocks[static_cast<size_t>(enough - rates.begin())];
    costs.kernel_rate = *enough;
  }

  const MeasureProbe& measure_;
  Status status_;
};

}  // namespace

Result<CudaCopyCosts> Calibrate(const CalibrationOptions& options, const MeasureProbe& measure) {
  CudaCopyCosts costs;
  Calibrator calibrator(measure);
  calibrator.MeasureEngine(options.has_rows, costs);
  if (options.has_kernel) calibrator.MeasureKernel(options.kernel_blocks, costs);
  if (!calibrator.status().ok()) return calibrator.status();
  costs.measured = true;
  return costs;
}

}  // namespace kvcast::cuda
