// SPDX-License-Identifier: Apache-2.0
#include "cuda/path_chooser.h"

#include <algorithm>
#include <bit>

#include "cuda/pieces.h"
#include "cuda/staged_copier.h"

namespace kvcast::cuda {
namespace {

// The previous choice stays until the cost of another path is below this fraction of the previous
// choice's cost.
constexpr double kClearlyBetter = 0.9;
constexpr size_t kEngineFromBytes = size_t{32} << 10;
constexpr size_t kKernelFromRows = 32;

double ToDouble(size_t n) { return static_cast<double>(n); }
size_t PathIndex(CudaCopyPath path) { return static_cast<size_t>(path); }

}  // namespace

void CopyShape::Add(CopyDirection direction, const CopyOp& op) {
  if (op.bytes() == 0) return;
  const std::byte* const host = direction == CopyDirection::kLoad ? op.src : op.dst;
  fragment_bytes = copies == 0 ? op.row_bytes : std::min(fragment_bytes, op.row_bytes);
  ++copies;
  rows += op.rows;
  bytes += op.bytes();
  one_host_run_each = one_host_run_each && IsOneHostRun(direction, op);
  if (host != host_end_) ++host_runs;
  host_end_ = host + op.bytes();
}

bool RowsAsOneIsCheaper(const CudaCopyCosts& costs, const CopyShape& shape) {
  return ToDouble(shape.copies) * costs.engine_per_copy +
             ToDouble(shape.rows) * costs.engine_per_row <
         ToDouble(shape.rows) * costs.engine_per_copy;
}

double EngineSeconds(const CudaCopyCosts& costs, const CopyShape& shape) {
  const double one_each = ToDouble(shape.rows) * costs.engine_per_copy;
  const double as_one =
      ToDouble(shape.copies) * costs.engine_per_copy + ToDouble(shape.rows) * costs.engine_per_row;
  return costs.engine_start +
         std::max(std::min(one_each, as_one), ToDouble(shape.bytes) / costs.link_rate);
}

double KernelSeconds(const CudaCopyCosts& costs, const CopyShape& shape) {
  const size_t pieces = std::max(shape.rows, shape.bytes / kMaxPieceBytes);
  return costs.kernel_start + std::max(ToDouble(pieces) * costs.kernel_per_piece,
                                       ToDouble(shape.bytes) / costs.kernel_rate);
}

// The copy over the link and the kernel overlap in all grains except one. The time of the kernel
// includes the cost of each piece.
double StagedSeconds(const CudaCopyCosts& costs, const CopyShape& shape) {
  const size_t pieces = std::max(shape.rows, shape.bytes / kMaxPieceBytes);
  const double link = std::max(ToDouble(shape.host_runs) * costs.engine_per_copy,
                               ToDouble(shape.bytes) / costs.link_rate);
  const double device = std::max(ToDouble(pieces) * costs.kernel_per_piece,
                                 ToDouble(shape.bytes) / costs.device_rate);
  return costs.engine_start + costs.kernel_start + std::max(link, device) +
         std::min(link, device) / ToDouble(StagedCopier::kGrains);
}

size_t PathChooser::ClassOf(size_t fragment_bytes) {
  return std::min<size_t>(std::bit_width(std::max<size_t>(fragment_bytes, 1)) - 1, kClasses - 1);
}

bool PathChooser::Has(CudaCopyPath path, const CopyShape& shape) const {
  switch (path) {
    case CudaCopyPath::kCopyEngine:
      return true;
    case CudaCopyPath::kKernel:
      return rules_.has_kernel;
    case CudaCopyPath::kStaged:
      return rules_.has_staging && rules_.has_kernel && shape.one_host_run_each;
  }
  return false;
}

CudaCopyPath PathChooser::ByRuleOfThumb(const CopyShape& shape) const {
  const bool small = shape.fragment_bytes < kEngineFromBytes && shape.rows >= kKernelFromRows;
  return small && rules_.has_kernel ? CudaCopyPath::kKernel : CudaCopyPath::kCopyEngine;
}

CudaCopyPath PathChooser::Cheapest(const CopyShape& shape,
                                   const CudaCopyStats::SizeClass& last) const {
  const double margin = 1 + rules_.kernel_margin;
  // The kernel of the staged path accesses only the GPU's own memory. It uses the multiprocessors
  // for a shorter time than the kernel path, so its margin is smaller.
  const std::array<double, kNumCudaCopyPaths> weights = {1, margin, 1 + rules_.kernel_margin / 3};
  CudaCopyPath best = CudaCopyPath::kCopyEngine;
  const auto cost = [&](CudaCopyPath path) {
    return last.expected[PathIndex(path)] * weights[PathIndex(path)];
  };
  for (const CudaCopyPath path : {CudaCopyPath::kKernel, CudaCopyPath::kStaged}) {
    if (Has(path, shape) && cost(path) < cost(best)) best = path;
  }
  const bool was_chosen = std::ranges::any_of(last.copies, [](uint64_t n) { return n > 0; });
  if (was_chosen && Has(last.choice, shape) && cost(best) > kClearlyBetter * cost(last.choice)) {
    return last.choice;
  }
  return best;
}

CudaCopyPath PathChooser::Choose(const CopyShape& shape) {
  const size_t index = ClassOf(shape.fragment_bytes);
  CudaCopyStats::SizeClass& size_class = classes_[index];
  seen_[index] = true;
  size_class.fragment_bytes = size_t{1} << index;
  size_class.expected = {};
  if (costs_.measured) {
    size_class.expected[PathIndex(CudaCopyPath::kCopyEngine)] = EngineSeconds(costs_, shape);
    if (Has(CudaCopyPath::kKernel, shape)) {
      size_class.expected[PathIndex(CudaCopyPath::kKernel)] = KernelSeconds(costs_, shape);
    }
    if (Has(CudaCopyPath::kStaged, shape)) {
      size_class.expected[PathIndex(CudaCopyPath::kStaged)] = StagedSeconds(costs_, shape);
    }
  }
  CudaCopyPath choice = CudaCopyPath::kCopyEngine;
  if (rules_.forced) {
    if (Has(*rules_.forced, shape)) choice = *rules_.forced;
  } else {
    choice = costs_.measured ? Cheapest(shape, size_class) : ByRuleOfThumb(shape);
  }
  size_class.choice = choice;
  size_class.copies[PathIndex(choice)] += shape.copies;
  size_class.bytes[PathIndex(choice)] += shape.bytes;
  return choice;
}

std::vector<CudaCopyStats::SizeClass> PathChooser::classes() const {
  std::vector<CudaCopyStats::SizeClass> classes;
  for (size_t i = 0; i < kClasses; ++i) {
    if (seen_[i]) classes.push_back(classes_[i]);
  }
  return classes;
}

}  // namespace kvcast::cuda
