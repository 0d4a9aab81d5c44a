// SPDX-License-Identifier: Apache-2.0
#include "router/select/sequence_book.h"

#include <algorithm>
#include <cmath>

namespace kvcast {
namespace {

constexpr double kShortestSeconds = 0.1;  // shorter idle times are in the first bin
constexpr double kBinsPerOctave = 4;
// Chances are multiples of 1 / kChanceSteps. Sums of tokens times chances are then exact, and do
// not depend on the order of the conversations in the hash table.
constexpr double kChanceSteps = 1 << 20;

}  // namespace

size_t SequenceBook::BinOf(double idle_s) {
  const double octaves = std::log2(std::max(idle_s, kShortestSeconds) / kShortestSeconds);
  return std::min(static_cast<size_t>(std::lround(kBinsPerOctave * octaves)), kBins - 1);
}

std::optional<PrefixName> SequenceBook::Find(std::span<const PrefixName> prefixes) const {
  const size_t end = prefixes.size() > kLookBack ? prefixes.size() - kLookBack : 0;
  for (size_t i = prefixes.size(); i > end; --i) {
    if (sequences_.contains(prefixes[i - 1])) return prefixes[i - 1];
  }
  return std::nullopt;
}

double SequenceBook::Weight(const Sequence& sequence, double now_s) const {
  return sequence.active > 0 ? 1 : ChanceToContinue(now_s - sequence.last_s);
}

void SequenceBook::Refresh(double now_s) {
  refreshed_s_ = now_s;
  std::array<double, kBins> waiting{};  // conversations that have not continued
  for (const auto& [name, sequence] : sequences_) {
    if (sequence.active == 0) ++waiting[BinOf(now_s - sequence.last_s)];
  }
  // Of the conversations that were idle longer than the bin: the number that continued, and the
  // number that has not continued.
  double continued = 0;
  double ended = 0;
  for (size_t bin = kBins; bin-- > 0;) {
    const double later = continued + gaps_[bin] / 2;
    const double chance = (later + 0.5) / (later + ended + waiting[bin] / 2 + 1);
    chances_[bin] = std::round(chance * kChanceSteps) / kChanceSteps;
    continued += gaps_[bin];
    ended += waiting[bin];
  }
  expected_.clear();
  for (const auto& [name, sequence] : sequences_) {
    expected_[sequence.worker] += static_cast<double>(sequence.tokens) * Weight(sequence, now_s);
  }
}

double SequenceBook::ExpectedTokens(WorkerId worker, std::optional<PrefixName> without,
                                    double now_s) {
  if (now_s - refreshed_s_ >= kRefreshSeconds) Refresh(now_s);
  const auto it = expected_.find(worker);
  double tokens = it == expected_.end() ? 0 : it->second;
  if (without) {
    const Sequence& own = sequences_.at(*without);
    if (own.worker == worker) tokens -= static_cast<double>(own.tokens) * Weight(own, refreshed_s_);
  }
  return std::max(tokens, 0.0);
}

PrefixName SequenceBook::Routed(std::optional<PrefixName> continues,
                                std::span<const PrefixName> prefixes, WorkerId worker,
                                int64_t tokens, double now_s) {
  const PrefixName name = prefixes.back();
  Sequence sequence;
  if (continues) {
    const auto it = sequences_.find(*continues);
    sequence = it->second;
    expected_[sequence.worker] -=
        static_cast<double>(sequence.tokens) * Weight(sequence, refreshed_s_);
    if (sequence.active == 0) ++gaps_[BinOf(now_s - sequence.last_s)];
    // The ends of the earlier requests are reported with the old name, which the book no longer
    // has.
    if (*continues != name) sequence.active = 0;
    sequences_.erase(it);
  }
  // If the same prompt was routed before, both requests belong to one conversation.
  if (const auto same = sequences_.find(name); same != sequences_.end()) {
    sequence.active += same->second.active;
    expected_[same->second.worker] -=
        static_cast<double>(same->second.tokens) * Weight(same->second, refreshed_s_);
  }
  sequence.worker = worker;
  sequence.tokens = tokens;
  sequence.last_s = now_s;
  ++sequence.active;
  sequence.order = next_order_++;
  expected_[worker] += static_cast<double>(tokens);
  sequences_[name] = sequence;
  by_age_.emplace_back(name, sequence.order);
  DropOldest();
  return name;
}

void SequenceBook::DropOldest() {
  while (!by_age_.empty() && (sequences_.size() > most_ || by_age_.size() > 2 * most_)) {
    const auto [name, order] = by_age_.front();
    by_age_.pop_front();
    const auto it = sequences_.find(name);
    if (it != sequences_.end() && it->second.order == order) sequences_.erase(it);
  }
}

void SequenceBook::Ended(PrefixName name, double now_s) {
  const auto it = sequences_.find(name);
  if (it == sequences_.end() || it->second.active == 0) return;
  if (--it->second.active == 0) it->second.last_s = now_s;
}

void SequenceBook::Forget(WorkerId worker) {
  absl::erase_if(sequences_, [worker](const auto& entry) { return entry.second.worker == worker; });
  expected_.erase(worker);
}

}  // namespace kvcast
