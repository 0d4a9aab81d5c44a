// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/freshness_queries.h"

#include <algorithm>
#include <chrono>

namespace kvcast::tools {
namespace {

constexpr int kBatchQueries = 10;
constexpr auto kPause = std::chrono::milliseconds(4);

}  // namespace

FreshnessQueries::FreshnessQueries(const PrefixIndex& index, int sources)
    : index_(index), stored_(static_cast<size_t>(sources)) {
  for (int i = 0; i < sources; ++i) known_.push_back({PromptSequence(i), {}});
  thread_ = std::thread([this] { Run(); });
}

void FreshnessQueries::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void FreshnessQueries::Run() {
  while (!stopping_) {
    const Phase phase = phase_;
    for (int i = 0; i < kBatchQueries && phase != Phase::kNone; ++i) {
      Ask(i % 2 == 0, phase == Phase::kIdle ? idle_ : busy_);
    }
    std::this_thread::sleep_for(kPause);
  }
}

PromptSpan FreshnessQueries::HeldPrompt(int source, uint64_t at_least) {
  Known& known = known_[static_cast<size_t>(source)];
  const uint64_t stored = stored_[static_cast<size_t>(source)].load(std::memory_order_relaxed);
  const uint64_t oldest = stored - std::min(stored, kHeldBlocks);
  auto& prompts = known.prompts;
  while (prompts.empty() || prompts.back().end < stored) prompts.push_back(known.sequence.Next());
  while (prompts.size() > 1 && prompts.front().begin < oldest) prompts.pop_front();
  // Starts at a random prompt and takes the first one that is completely held and long enough.
  const size_t start = random_() % prompts.size();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const PromptSpan span = prompts[(start + i) % prompts.size()];
    const bool held = span.begin >= oldest && span.end <= stored;
    if (held && span.end - span.begin >= at_least) return span;
  }
  return {};
}

void FreshnessQueries::Ask(bool short_one, QueryTimes& times) {
  const auto source = static_cast<int>(random_() % stored_.size());
  PromptSpan span = HeldPrompt(source, short_one ? kQueriedBlocks : 1);
  if (span.begin == span.end) return;
  if (short_one) span.end = span.begin + kQueriedBlocks;
  chain_.clear();
  for (uint64_t block = span.begin; block < span.end; ++block) {
    chain_.emplace_back(HashOfBlock(source, block));
  }
  const auto tokens = static_cast<int64_t>(chain_.size()) * kFreshnessBlockSize + 1;
  const auto start = bench::Clock::now();
  const std::vector<WorkerMatch> matches = index_.Match(chain_, kFreshnessBlockSize, tokens);
  (short_one ? times.short_prompts : times.any_prompts).Add(bench::NanosecondsSince(start));
  times.hits += std::ranges::any_of(
      matches, [&](const WorkerMatch& match) { return match.gpu_tokens == tokens - 1; });
}

}  // namespace kvcast::tools
