// SPDX-License-Identifier: Apache-2.0
#include "kvcast/scheme_detector.h"

#include <algorithm>
#include <utility>

#include "kvcast/prefix_index.h"
#include "router/group_catalogue.h"
#include "router/key_readings.h"
#include "router/scheme_search.h"
#include "router/verified_digests.h"

namespace kvcast {

using router::BlockProbe;
using router::SchemeSearch;
using router::VerifiedDigests;

namespace {

// One store that fits nothing may be at fault itself; with the second, the scheme is.
constexpr uint64_t kRefutationsToGiveUp = 2;

// The testable stores at the root, or those behind it.
struct Position {
  uint64_t until_sample = 0;  // stores
  // In a row, without a fit.
  uint64_t misses = 0;
  uint64_t refutations = 0;  // of them, with nothing left to try

  bool TakeSample(uint64_t period) {
    const bool due = until_sample == 0;
    until_sample = due ? period - 1 : until_sample - 1;
    return due;
  }
  bool given_up() const {
    return refutations >= kRefutationsToGiveUp || misses >= kSchemeMissesToGiveUp;
  }
};

std::optional<Digest> DigestOf(const BlockHash& hash) {
  constexpr size_t kSizes[] = {16, 32};
  Digest digest;
  const auto bytes = hash.bytes();
  if (std::ranges::find(kSizes, bytes.size()) == std::end(kSizes)) return std::nullopt;
  std::copy(bytes.begin(), bytes.end(), digest.data.begin());
  digest.size = static_cast<uint8_t>(bytes.size());
  return digest;
}

// What alone speaks against a test, whatever the scheme.
std::optional<SchemeSkip> WhyUntestable(const BlockStored& event) {
  if (router::TierOf(event.medium) != Tier::kGpu) return SchemeSkip::kOtherTier;
  if (event.block_hashes.empty()) return SchemeSkip::kNoHashes;
  if (!event.token_ids || event.token_ids->empty()) return SchemeSkip::kNoTokens;
  if (event.tokens_per_position != 1) return SchemeSkip::kTokenPairs;
  if (event.block_size < 1 || event.block_size > kMaxBlockSize) return SchemeSkip::kBlockSize;
  const auto size = static_cast<size_t>(event.block_size);
  if (event.token_ids->size() != event.block_hashes.size() * size) return SchemeSkip::kSparse;
  return std::nullopt;
}

// True if no hash unit and no reading of the keys was left out of the search.
bool IsSearchComplete(const BlockStored& event) {
  if (event.block_size > kMaxUnitsPerBlock) return false;
  const bool every_unit = event.block_size == 1 || !router::ReadKeys(event, 0, 2).readings.empty();
  return every_unit && router::ReadKeys(event, 0, 1).complete;
}

}  // namespace

class SchemeDetector::Impl {
 public:
  Impl(SchemeSearch search, uint64_t period) : search_(std::move(search)), period_(period) {}

  void OnStore(const BlockStored& event);
  void OnClear();
  void Restart();

  SchemeVerdict verdict{.reason = "no store at the root seen yet"};
  SchemeCounters counters;

 private:
  std::optional<SchemeSkip> FindParent(const BlockStored& event, std::optional<Digest>& parent);
  std::optional<SchemeSkip> CheckKeys(const BlockStored& event) const;
  void Skip(SchemeSkip reason);
  bool Due(bool at_root);
  void Test(const BlockProbe& probe);
  std::optional<Digest> FitKnown(const BlockProbe& probe);
  void OnFit(bool at_root);
  void OnFound(const ChainScheme& found);
  void OnMiss(Position& place, bool conclusive);
  void ForgetScheme();
  void GiveUp();
  void Follow(const BlockProbe& probe, Digest digest);
  void Say(SchemeState state, std::string reason) { verdict = {state, scheme_, std::move(reason)}; }

  SchemeSearch search_;
  const uint64_t period_;
  std::optional<ChainScheme> scheme_;    // fits the stores
  std::optional<ChainScheme> previous_;  // fitted them before
  VerifiedDigests verified_{kMaxVerifiedDigests};
  Position root_;
  Position behind_;
  uint64_t tokenless_ = 0;
};

std::optional<SchemeSkip> SchemeDetector::Impl::FindParent(const BlockStored& event,
                                                           std::optional<Digest>& parent) {
  if (!event.parent_block_hash) {
    const bool at_root = event.token_offset.value_or(0) == 0;
    return at_root ? std::nullopt : std::optional(SchemeSkip::kUnknownParent);
  }
  if (event.parent_block_hash->is_bytes()) {
    parent = DigestOf(*event.parent_block_hash);
  } else if (const Digest* known = verified_.Find(event.parent_block_hash->integer())) {
    parent = *known;
  }
  return parent ? std::nullopt : std::optional(SchemeSkip::kUnknownParent);
}

std::optional<SchemeSkip> SchemeDetector::Impl::CheckKeys(const BlockStored& event) const {
  int64_t units = 1;
  // A block that the unit does not divide is tested: it speaks against the unit.
  if (scheme_ && event.block_size % scheme_->hash_block_size == 0) {
    units = event.block_size / scheme_->hash_block_size;
  }
  if (units > kMaxUnitsPerBlock) return SchemeSkip::kBlockSize;
  if (router::ReadKeys(event, 0, units).readings.empty()) return SchemeSkip::kUnresolvedKeys;
  return std::nullopt;
}

void SchemeDetector::Impl::Skip(SchemeSkip reason) {
  ++counters.skipped[static_cast<size_t>(reason)];
  if (reason != SchemeSkip::kNoTokens || verdict.state != SchemeState::kUnknown) return;
  if (++tokenless_ != kTokenlessStoresToGiveUp) return;
  // What is registered may still be right; nothing on this stream can say so.
  const bool registered = !search_.registration().empty();
  Say(registered ? SchemeState::kUnknown : SchemeState::kTokenMode, "stores carry no token ids");
}

void SchemeDetector::Impl::OnStore(const BlockStored& event) {
  ++counters.stores;
  std::optional<Digest> parent;
  std::optional<SchemeSkip> skip = WhyUntestable(event);
  if (!skip) skip = FindParent(event, parent);
  if (!skip) skip = CheckKeys(event);
  if (skip) return Skip(*skip);
  ++counters.testable;
  if (!Due(!parent)) return;
  Test({.event = event, .parent = parent ? &*parent : nullptr});
  counters.hashes = search_.hashes();
}

bool SchemeDetector::Impl::Due(bool at_root) {
  Position& place = at_root ? root_ : behind_;
  const bool sampled = place.TakeSample(period_);
  if (sampled || place.misses > 0) return sampled || place.misses < kSchemeMissesToGiveUp;
  // Stores behind the root tell algorithm and unit, and then nothing more.
  const bool open = at_root ? scheme_ && scheme_->none_hash.empty() : !scheme_;
  return open || (at_root && verdict.state == SchemeState::kUnknown);
}

std::optional<Digest> SchemeDetector::Impl::FitKnown(const BlockProbe& probe) {
  return scheme_ ? search_.Fit(*scheme_, probe) : std::nullopt;
}

void SchemeDetector::Impl::Test(const BlockProbe& probe) {
  ++counters.tested;
  const bool at_root = probe.parent == nullptr;
  if (const auto digest = FitKnown(probe)) {
    ++counters.matched;
    OnFit(at_root);
    return Follow(probe, *digest);
  }
  const auto found = search_.Find(probe);
  if (!found) return OnMiss(at_root ? root_ : behind_, IsSearchComplete(probe.event));
  OnFit(at_root);
  OnFound(found->scheme);
  Follow(probe, found->digest);
}

// A fit at the root settles all, one behind it says nothing of the seed.
void SchemeDetector::Impl::OnFit(bool at_root) {
  behind_.misses = behind_.refutations = 0;
  if (at_root) root_.misses = root_.refutations = 0;
}

void SchemeDetector::Impl::OnFound(const ChainScheme& found) {
  const bool seedless = found.none_hash.empty();
  // The seed that comes to algorithm and unit makes no other scheme.
  const bool completes = scheme_ && scheme_->none_hash.empty() &&
                         scheme_->algorithm == found.algorithm &&
                         scheme_->hash_block_size == found.hash_block_size;
  const bool replaces = scheme_ && !completes;
  if (replaces && !scheme_->none_hash.empty()) previous_ = scheme_;
  scheme_ = found;
  const bool as_registered = search_.IsAsRegistered(found);
  ++(as_registered && !replaces ? counters.matched : counters.mismatched);
  std::string reason;
  if (!seedless && previous_ && *previous_ != found) {
    ++counters.changes;
    reason = "changed from " + ToString(*previous_);
  }
  if (!seedless) previous_.reset();
  if (!as_registered) {
    Say(SchemeState::kMismatch, "registered " + std::string(search_.registration()) +
                                    "; the stores have " + ToString(found));
  } else if (!seedless) {
    Say(SchemeState::kMatched, std::move(reason));
  } else if (root_.misses > 0) {
    verdict.scheme = scheme_;  // what was said of the seed stands
  } else {
    Say(SchemeState::kUnknown, "no store at the root seen yet");
  }
}

void SchemeDetector::Impl::OnMiss(Position& place, bool conclusive) {
  ++(conclusive ? counters.mismatched : counters.inconclusive);
  ++place.misses;
  if (conclusive) ++place.refutations;
  const bool never_fitted = !scheme_ || scheme_->none_hash.empty();
  const bool against_registration =
      never_fitted && place.refutations > 0 && !search_.registration().empty();
  if (!against_registration && !place.given_up()) return;
  // Algorithm and unit of the stores behind the root may stand without a seed.
  if (&place == &behind_ || !never_fitted) ForgetScheme();
  GiveUp();
}

void SchemeDetector::Impl::ForgetScheme() {
  if (scheme_ && !scheme_->none_hash.empty()) previous_ = scheme_;
  scheme_.reset();
}

void SchemeDetector::Impl::GiveUp() {
  const std::string before = previous_ ? ", " + ToString(*previous_) + " before" : "";
  if (search_.registration().empty()) {
    return Say(SchemeState::kTokenMode, "no known scheme fits the stores" + before);
  }
  Say(SchemeState::kMismatch, "registered " + std::string(search_.registration()) +
                                  "; no known scheme fits the stores" + before);
}

// Verifies the store's next blocks, so that the store behind it finds its parent.
void SchemeDetector::Impl::Follow(const BlockProbe& probe, Digest digest) {
  const int64_t units = probe.event.block_size / scheme_->hash_block_size;
  int64_t left = kMaxFollowedUnits;
  for (size_t i = 1; i < probe.event.block_hashes.size() && left >= units; ++i, left -= units) {
    const Digest parent = digest;
    const auto next = search_.Fit(*scheme_, {.event = probe.event, .index = i, .parent = &parent});
    if (!next) break;
    digest = *next;
  }
  if (!probe.event.block_hashes[0].is_bytes() && verified_.Add(digest)) ++counters.forgotten;
}

void SchemeDetector::Impl::OnClear() {
  root_.until_sample = behind_.until_sample = 0;
  verified_.Clear();
}

void SchemeDetector::Impl::Restart() {
  ForgetScheme();
  root_ = behind_ = Position();
  verified_.Clear();
  tokenless_ = 0;
  Say(SchemeState::kUnknown, "no store at the root seen yet");
}

Result<SchemeDetector> SchemeDetector::Create(const SchemeDetectorConfig& config) {
  auto search = SchemeSearch::Create(config);
  if (!search.ok()) return search.status();
  return SchemeDetector(std::make_unique<Impl>(std::move(search).value(), config.sample_period));
}

SchemeDetector::SchemeDetector(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SchemeDetector::SchemeDetector(SchemeDetector&&) noexcept = default;
SchemeDetector& SchemeDetector::operator=(SchemeDetector&&) noexcept = default;
SchemeDetector::~SchemeDetector() = default;

void SchemeDetector::Observe(const Event& event) {
  if (const auto* stored = std::get_if<BlockStored>(&event)) return impl_->OnStore(*stored);
  const auto* cleared = std::get_if<AllBlocksCleared>(&event);
  if (cleared && router::TierOf(cleared->medium) == Tier::kGpu) impl_->OnClear();
}

void SchemeDetector::Observe(const EventBatch& batch) {
  for (const Event& event : batch.events) Observe(event);
}

void SchemeDetector::Restart() { impl_->Restart(); }
const SchemeVerdict& SchemeDetector::verdict() const { return impl_->verdict; }
const SchemeCounters& SchemeDetector::counters() const { return impl_->counters; }

std::string_view SchemeStateName(SchemeState state) {
  constexpr std::string_view kNames[kSchemeStates] = {"unknown", "matched", "token_mode",
                                                      "mismatch"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view SchemeSkipName(SchemeSkip reason) {
  constexpr std::string_view kNames[kSchemeSkips] = {
      "other_tier", "no_hashes", "no_tokens",      "token_pairs",
      "block_size", "sparse",    "unknown_parent", "unresolved_keys"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace kvcast
