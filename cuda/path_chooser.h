// PathChooser: chooses the path for copies of one size, in one direction.
//
// The layout of a group fixes the size of its fragments, so PathChooser distinguishes groups by
// this size. The caller divides a batch that has copies of several sizes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <optional>

#include "kvcast/cuda/cuda_copy_backend.h"

namespace kvcast::cuda {

// The copies of one size class in a batch.
struct CopyShape {
  size_t fragment_bytes = 0;  // the size of the smallest row
  size_t copies = 0;
  size_t rows = 0;  // of all copies
  size_t bytes = 0;
  size_t host_runs = 0;           // copies that are adjacent in host memory count as one
  bool one_host_run_each = true;  // every copy's rows are contiguous in host memory

  void Add(CopyDirection direction, const CopyOp& op);

 private:
  const std::byte* host_end_ = nullptr;
};

// Seconds from the call until the bytes have arrived, if no other copies run.
double EngineSeconds(const CudaCopyCosts& costs, const CopyShape& shape);
double KernelSeconds(const CudaCopyCosts& costs, const CopyShape& shape);
double StagedSeconds(const CudaCopyCosts& costs, const CopyShape& shape);
// True if one descriptor for all rows of a copy is cheaper than one descriptor for each row.
bool RowsAsOneIsCheaper(const CudaCopyCosts& costs, const CopyShape& shape);

struct PathRules {
  std::optional<CudaCopyPath> forced;  // nullopt: Choose compares the costs of the paths
  bool has_kernel = true;
  bool has_staging = true;
  double kernel_margin = 0.15;
};

class PathChooser {
 public:
  // Class i has the fragment sizes from 2^i to 2^(i+1) - 1 bytes.
  static constexpr size_t kClasses = 48;

  PathChooser(const PathRules& rules, CudaCopyCosts costs) : rules_(rules), costs_(costs) {}

  static size_t ClassOf(size_t fragment_bytes);

  // Keeps an earlier choice until another path is clearly better. Counts the copies for the chosen
  // path.
  CudaCopyPath Choose(const CopyShape& shape);

  const CudaCopyCosts& costs() const { return costs_; }
  // The classes that have occurred, by size.
  std::vector<CudaCopyStats::SizeClass> classes() const;

 private:
  CudaCopyPath Cheapest(const CopyShape& shape, const CudaCopyStats::SizeClass& last) const;
  // The choice if nothing was measured.
  CudaCopyPath ByRuleOfThumb(const CopyShape& shape) const;
  bool Has(CudaCopyPath path, const CopyShape& shape) const;

  const PathRules rules_;
  const CudaCopyCosts costs_;
  std::array<CudaCopyStats::SizeClass, kClasses> classes_{};
  std::array<bool, kClasses> seen_{};
};

}  // namespace kvcast::cuda
