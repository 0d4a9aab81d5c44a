// SPDX-License-Identifier: Apache-2.0
#include "apps/support/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace kvcast::tools {
namespace {
constexpr int kWidth = 40;
}  // namespace

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(std::max<int64_t>(total, 1)),
      terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::Update(int64_t done) {
  const int64_t percent = std::min<int64_t>(100 * done / total_, 100);
  const int64_t step = terminal_ ? 1 : 10;
  if (shown_percent_ >= 0 && percent / step == shown_percent_ / step) return;
  shown_percent_ = percent;
  if (!terminal_) {
    std::fprintf(stderr, "%s: %lld %%\n", label_.c_str(), static_cast<long long>(percent));
    return;
  }
  const auto filled = static_cast<size_t>(percent * kWidth / 100);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  std::fprintf(stderr, "\r%-24s [%s] %3lld %%", label_.c_str(), bar.c_str(),
               static_cast<long long>(percent));
  std::fflush(stderr);
}

void Progress::Finish() {
  if (terminal_ && shown_percent_ >= 0) std::fputc('\n', stderr);
  shown_percent_ = -1;
}

}  // namespace kvcast::tools
