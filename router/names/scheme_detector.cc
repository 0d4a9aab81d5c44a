// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/scheme_detector.h"

#include <algorithm>
#include <utility>

#include "kvcast/core/tier.h"
#include "kvcast/router/prefix_index.h"
#include "router/names/key_readings.h"
#include "router/names/kind_proofs.h"
#include "router/names/scheme_search.h"
#include "router/names/store_testability.h"
#include "router/names/verified_digests.h"

namespace kvcast {

using router::BlockProbe;
using router::Fit;
using router::IsLookaheadConsistent;
using router::KeyKindSet;
using router::KindsOf;
using router::SchemeSearch;
using router::SetOf;
using router::VerifiedDigests;

namespace {

// The first store that fits no scheme may itself be wrong. After the second such store, the
// detector gives up the scheme.
constexpr uint64_t kRefutationsToGiveUp = 2;

// The state of the tests of one kind of store: at the root, behind the root, or with an incomplete
// span.
struct Position {
  uint64_t until_sample = 0;  // stores before the next sampled store
  // Tests in a row without a fit.
  uint64_t misses = 0;
  uint64_t refutations = 0;  // misses although all possibilities were tried

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

}  // namespace

class SchemeDetector::Impl {
 public:
  Impl(SchemeSearch search, uint64_t period)
      : search_(std::move(search)), period_(period), proofs_(period) {}

  void OnStore(const BlockStored& event);
  void OnClear();
  void Restart();

  SchemeVerdict verdict{.reason = "no testable store at the start of a prompt was seen yet"};
  SchemeCounters counters;

 private:
  enum class Outcome : uint8_t { kMatched, kMismatched, kInconclusive };

  std::optional<SchemeSkip> FindParent(const BlockStored& event, std::optional<Digest>& parent);
  void Skip(SchemeSkip reason);
  bool IsDue(const BlockProbe& probe, KeyKindSet due);
  bool IsSpanDue(const BlockProbe& probe, KeyKindSet due);
  Outcome TestBlocks(const BlockProbe& probe, KeyKindSet due);
  Outcome TestSpan(const BlockProbe& probe);
  Outcome OnSpanMiss(const BlockStored& event, KeyKindSet kinds);
  std::optional<SchemeSearch::Found> Search(const BlockProbe& probe);
  void NoteOpen(const BlockStored& event, KeyKindSet kinds, std::string_view reason);
  std::optional<Fit> FitKnown(const BlockProbe& probe);
  void OnFit(bool at_root);
  Outcome OnFound(const ChainScheme& found);
  Outcome OnMiss(const BlockProbe& probe);
  void OnSchemeMiss(Position& place, bool conclusive);
  Outcome OnKeysMiss(const BlockProbe& probe, KeyKindSet kinds);
  void ForgetScheme();
  void GiveUp();
  Outcome Follow(const BlockProbe& probe, Digest digest, KeyKindSet due);
  void Prove(KeyKindSet kinds, ExtraKeyScheme form, const BlockStored& event);
  void Verify(const Digest& digest, const BlockStored& event);
  void NoteProofs();
  void SetVerdict(SchemeState state, std::string reason);
  // True if the scheme is known with its seed. Only then a fit proves something about a prompt.
  bool IsKnown() const { return scheme_ && !scheme_->none_hash.empty(); }

  SchemeSearch search_;
  const uint64_t period_;
  std::optional<ChainScheme> scheme_;    // the scheme of the stores
  std::optional<ChainScheme> previous_;  // the scheme of earlier stores
  router::KindProofs proofs_;
  bool proofs_changed_ = false;
  bool fitted_blocks_ = false;  // a store that announces all its blocks fitted the scheme
  VerifiedDigests verified_{kMaxVerifiedDigests};
  Position root_;
  Position behind_;
  Position spans_;               // incomplete spans
  bool carries_tokens_ = false;  // a GPU store had token ids
  uint64_t tokenless_ = 0;       // GPU stores without token ids
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

void SchemeDetector::Impl::Skip(SchemeSkip reason) {
  ++counters.skipped[static_cast<size_t>(reason)];
  if (reason != SchemeSkip::kNoTokens || carries_tokens_) return;
  if (verdict.state != SchemeState::kUnknown) return;
  if (++tokenless_ != kTokenlessStoresToGiveUp) return;
  // A registered scheme may still be right, but no store of this stream can show it.
  const bool registered = !search_.registration().empty();
  SetVerdict(registered ? SchemeState::kUnknown : SchemeState::kTokenMode,
             "stores carry no token ids");
}

void SchemeDetector::Impl::OnStore(const BlockStored& event) {
  ++counters.stores;
  std::optional<Digest> parent;
  std::optional<SchemeSkip> skip = router::WhyUntestable(event);
  carries_tokens_ |= skip != SchemeSkip::kOtherTier && skip != SchemeSkip::kNoHashes &&
                     skip != SchemeSkip::kNoTokens;
  if (!skip) skip = FindParent(event, parent);
  if (!skip) skip = router::WhyKeysUntestable(event, scheme_, search_.lora_paths());
  if (skip) return Skip(*skip);
  ++counters.testable;
  search_.Earn(event.token_ids->size());
  const BlockProbe probe{.event = event,
                         .parent = parent ? &*parent : nullptr,
                         .incomplete = !router::NamesEveryBlock(event)};
  KeyKindSet present;
  for (size_t i = 0; i < event.block_hashes.size(); ++i) present |= KindsOf(event, i);
  // Without a known scheme there is nothing to prove.
  const KeyKindSet due = IsKnown() ? proofs_.TakeTurns(present) : KeyKindSet();
  if (!IsDue(probe, due)) return;
  ++counters.tested;
  const Outcome outcome = probe.incomplete ? TestSpan(probe) : TestBlocks(probe, due);
  if (outcome != Outcome::kMatched && !parent && verdict.state == SchemeState::kUnknown) {
    verdict.reason = "no known scheme has fitted a store at the start of a prompt yet";
  }
  ++(outcome == Outcome::kMatched      ? counters.matched
     : outcome == Outcome::kMismatched ? counters.mismatched
                                       : counters.inconclusive);
  counters.hashes = search_.hashes();
  NoteProofs();
}

bool SchemeDetector::Impl::IsDue(const BlockProbe& probe, KeyKindSet due) {
  if (probe.incomplete) return IsSpanDue(probe, due);
  const bool at_root = probe.parent == nullptr;
  Position& place = at_root ? root_ : behind_;
  // Stores whose first block has keys are sampled by kind (TakeTurns), so that they do not use the
  // samples of other stores.
  const bool keyed = (KindsOf(probe.event, 0) & router::KeyedKinds()).any();
  if (IsKnown() && keyed) return due.any();
  const bool sampled = place.TakeSample(period_);
  if (due.any()) return true;
  if (sampled || place.misses > 0) return sampled || place.misses < kSchemeMissesToGiveUp;
  // Stores behind the root show only the algorithm and the hash_block_size.
  const bool open = at_root ? scheme_ && scheme_->none_hash.empty() : !scheme_;
  return open || (at_root && verdict.state == SchemeState::kUnknown);
}

// If a store with a complete span has fitted the scheme, a store with an incomplete span is only
// tested if a kind that is due is not proven.
bool SchemeDetector::Impl::IsSpanDue(const BlockProbe& probe, KeyKindSet due) {
  const bool sampled = spans_.TakeSample(period_);
  if (IsKnown() && fitted_blocks_) return !proofs_.IsEveryProven(due);
  if (sampled || due.any()) return true;
  if (spans_.misses > 0) return spans_.misses < kSchemeMissesToGiveUp;
  return probe.parent == nullptr ? !IsKnown() : !scheme_;
}

std::optional<Fit> SchemeDetector::Impl::FitKnown(const BlockProbe& probe) {
  return scheme_ ? search_.TryScheme(*scheme_, probe) : std::nullopt;
}

std::optional<SchemeSearch::Found> SchemeDetector::Impl::Search(const BlockProbe& probe) {
  // If the scheme is known, a store of an adapter without a configured path does not contradict the
  // scheme.
  const bool adapter_without_path =
      router::AdapterWithoutPath(probe.event, search_.lora_paths()).has_value();
  if (IsKnown() && (adapter_without_path || (probe.incomplete && fitted_blocks_)))
    return std::nullopt;
  return search_.Find(probe);
}

SchemeDetector::Impl::Outcome SchemeDetector::Impl::TestBlocks(const BlockProbe& probe,
                                                               KeyKindSet due) {
  const bool at_root = probe.parent == nullptr;
  const KeyKindSet kinds = KindsOf(probe.event, 0);
  const bool consistent = IsLookaheadConsistent(probe.event);
  Outcome outcome = Outcome::kMatched;
  std::optional<Fit> fit = consistent ? FitKnown(probe) : std::nullopt;
  if (!fit) {
    const auto found = consistent ? Search(probe) : std::nullopt;
    if (!found) return OnMiss(probe);
    if (proofs_.IsAnyProven(kinds)) ++counters.contradictions;
    outcome = OnFound(found->scheme);
    fit = found->fit;
  }
  OnFit(at_root);
  fitted_blocks_ |= IsKnown();
  Prove(kinds, fit->form, probe.event);
  const Outcome behind = Follow(probe, fit->digest, due);
  return outcome == Outcome::kMatched ? behind : outcome;
}

SchemeDetector::Impl::Outcome SchemeDetector::Impl::TestSpan(const BlockProbe& probe) {
  KeyKindSet kinds;
  for (size_t i = 0; i < probe.event.block_hashes.size(); ++i) kinds |= KindsOf(probe.event, i);
  Outcome outcome = Outcome::kMatched;
  std::optional<Fit> fit = FitKnown(probe);
  if (!fit) {
    const auto found = Search(probe);
    if (!found) return OnSpanMiss(probe.event, kinds);
    if (proofs_.IsAnyProven(kinds)) ++counters.contradictions;
    outcome = OnFound(found->scheme);
    fit = found->fit;
  }
  spans_.misses = 0;
  OnFit(probe.parent == nullptr);
  Prove(kinds, fit->form, probe.event);
  Verify(fit->digest, probe.event);
  return outcome;
}

// Blocks that were not announced may have keys that were not sent. A miss is therefore not a
// contradiction.
SchemeDetector::Impl::Outcome SchemeDetector::Impl::OnSpanMiss(const BlockStored& event,
                                                               KeyKindSet kinds) {
  constexpr std::string_view kReason = "stores with incomplete token spans do not fit the scheme";
  NoteOpen(event, kinds, kReason);
  if (IsKnown() && fitted_blocks_) return Outcome::kInconclusive;
  if (++spans_.misses < kSchemeMissesToGiveUp) return Outcome::kInconclusive;
  if (IsKnown()) {
    proofs_.Withdraw(kinds, kReason);
  } else if (spans_.misses == kSchemeMissesToGiveUp) {
    GiveUp();
  }
  return Outcome::kInconclusive;
}

// A fit behind the root does not show the seed, so it does not reset root_.
void SchemeDetector::Impl::OnFit(bool at_root) {
  behind_.misses = behind_.refutations = 0;
  if (at_root) root_.misses = root_.refutations = 0;
}

SchemeDetector::Impl::Outcome SchemeDetector::Impl::OnFound(const ChainScheme& found) {
  const bool seedless = found.none_hash.empty();
  // A seed for the known algorithm and hash_block_size completes the scheme. Such a seed does not
  // make another scheme.
  const bool completes = scheme_ && scheme_->none_hash.empty() &&
                         scheme_->algorithm == found.algorithm &&
                         scheme_->hash_block_size == found.hash_block_size;
  const bool replaces = scheme_ && !completes;
  if (replaces) ForgetScheme();
  scheme_ = found;
  const bool as_registered = search_.IsAsRegistered(found);
  std::string reason;
  if (!seedless && previous_ && *previous_ != found) {
    ++counters.changes;
    reason = "changed from " + ToString(*previous_);
  }
  if (!seedless) previous_.reset();
  if (!as_registered) {
    SetVerdict(SchemeState::kMismatch, "registered " + std::string(search_.registration()) +
                                           "; the stores have " + ToString(found));
  } else if (!seedless) {
    SetVerdict(SchemeState::kMatched, std::move(reason));
  } else if (root_.misses > 0) {
    verdict.scheme = scheme_;  // the reason, which is about the seed, stays
  } else {
    SetVerdict(SchemeState::kUnknown, "no testable store at the start of a prompt was seen yet");
  }
  return as_registered && !replaces ? Outcome::kMatched : Outcome::kMismatched;
}

SchemeDetector::Impl::Outcome SchemeDetector::Impl::OnMiss(const BlockProbe& probe) {
  const KeyKindSet kinds = KindsOf(probe.event, 0);
  const bool keyed = (kinds & router::KeyedKinds()).any();
  // A block with keys does not contradict a scheme that other blocks have proven.
  if (keyed && IsKnown()) {
    root_.until_sample = behind_.until_sample = 0;
    return OnKeysMiss(probe, kinds & router::KeyedKinds());
  }
  const bool readable = !IsLookaheadConsistent(probe.event) ||
                        router::IsSearchComplete(probe.event, search_.lora_paths());
  // The store does not fit the known scheme, whether or not all other schemes were tried.
  if (readable && IsKnown()) {
    if (proofs_.Refute(kinds)) ++counters.contradictions;
    proofs_changed_ = true;
  }
  const bool conclusive = readable && !search_.was_cut();
  OnSchemeMiss(probe.parent == nullptr ? root_ : behind_, conclusive);
  return conclusive ? Outcome::kMismatched : Outcome::kInconclusive;
}

// Handles a block with keys that does not fit the scheme. REQUIRES: IsKnown().
SchemeDetector::Impl::Outcome SchemeDetector::Impl::OnKeysMiss(const BlockProbe& probe,
                                                               KeyKindSet kinds) {
  const int64_t hash_block_size = scheme_->hash_block_size;
  const bool divides = probe.event.block_size % hash_block_size == 0;
  const int64_t units = probe.event.block_size / hash_block_size;
  if (!divides || router::IsReadInFull(probe.event, probe.index, units, search_.lora_paths())) {
    // A kind with an adapter is refuted first, because the adapter's path is the only part of a
    // hash that no event carries. Otherwise, the kinds that are not proven are refuted. If all
    // kinds are proven, all kinds are refuted.
    const KeyKindSet adapter = kinds & SetOf(KeyKind::kLora);
    const KeyKindSet open = proofs_.Unproven(kinds);
    proofs_changed_ = true;
    if (proofs_.Refute(adapter.any() ? adapter : open.any() ? open : kinds)) {
      ++counters.contradictions;
    }
    return Outcome::kMismatched;
  }
  NoteOpen(probe.event, kinds, "the keys have more possible readings than the detector tries");
  return Outcome::kInconclusive;
}

void SchemeDetector::Impl::NoteOpen(const BlockStored& event, KeyKindSet kinds,
                                    std::string_view reason) {
  proofs_changed_ = true;
  if (const auto adapter_without_path = router::AdapterWithoutPath(event, search_.lora_paths())) {
    return proofs_.NoteOpen(SetOf(KeyKind::kLora),
                            "path of LoRA adapter " + *adapter_without_path + " is not registered");
  }
  proofs_.NoteOpen(kinds, reason);
}

void SchemeDetector::Impl::OnSchemeMiss(Position& place, bool conclusive) {
  ++place.misses;
  if (conclusive) ++place.refutations;
  const bool never_fitted = !IsKnown();
  const bool against_registration =
      never_fitted && place.refutations > 0 && !search_.registration().empty();
  if (!against_registration && !place.given_up()) return;
  // The algorithm and hash_block_size of the stores behind the root may stay valid without a seed.
  if (&place == &behind_ || !never_fitted) ForgetScheme();
  GiveUp();
}

void SchemeDetector::Impl::ForgetScheme() {
  if (IsKnown()) previous_ = scheme_;
  scheme_.reset();
  fitted_blocks_ = false;
  proofs_.Reset();
  proofs_changed_ = true;
}

void SchemeDetector::Impl::GiveUp() {
  const std::string before = previous_ ? ", " + ToString(*previous_) + " before" : "";
  if (search_.registration().empty()) {
    return SetVerdict(SchemeState::kTokenMode, "no known scheme fits the stores" + before);
  }
  SetVerdict(SchemeState::kMismatch, "registered " + std::string(search_.registration()) +
                                         "; no known scheme fits the stores" + before);
}

// Verifies the next blocks of the store. A store that follows these blocks then finds its parent.
// Also proves the kinds of key that are due.
SchemeDetector::Impl::Outcome SchemeDetector::Impl::Follow(const BlockProbe& probe, Digest digest,
                                                           KeyKindSet due) {
  const BlockStored& event = probe.event;
  const int64_t units = event.block_size / scheme_->hash_block_size;
  KeyKindSet missing = due & router::KeyedKinds() & ~KindsOf(event, 0);
  int64_t left = kMaxFollowedUnits;
  Outcome outcome = Outcome::kMatched;
  for (size_t i = 1; i < event.block_hashes.size(); ++i, left -= units) {
    const bool in_reach = missing.any() && static_cast<int64_t>(i + 1) * units <= kMaxTestedUnits;
    if (left < units && !in_reach) break;
    const KeyKindSet kinds = KindsOf(event, i);
    const Digest parent = digest;
    const BlockProbe block{.event = event, .index = i, .parent = &parent};
    const auto fit = search_.TryScheme(*scheme_, block);
    if (fit) {
      digest = fit->digest;
      missing &= ~kinds;
      Prove(kinds, fit->form, event);
      continue;
    }
    if (!IsKnown()) break;
    const KeyKindSet keyed = kinds & router::KeyedKinds();
    if (!router::IsReadable(event, i, units, search_.lora_paths())) {
      NoteOpen(event, keyed, "the keys of a block do not determine the keys of its hash units");
      break;
    }
    outcome = OnKeysMiss(block, keyed.any() ? keyed : kinds);
    break;
  }
  Verify(digest, event);
  return outcome;
}

void SchemeDetector::Impl::Prove(KeyKindSet kinds, ExtraKeyScheme form, const BlockStored& event) {
  if (!IsKnown()) return;
  const int64_t lookahead = event.lookahead ? event.lookahead->width : 0;
  if (proofs_.Fit(kinds, form, lookahead)) ++counters.contradictions;
  if (proofs_.form()) search_.Prefer(*proofs_.form());
  proofs_changed_ = true;
}

void SchemeDetector::Impl::Verify(const Digest& digest, const BlockStored& event) {
  if (!event.block_hashes[0].is_bytes() && verified_.Add(digest)) ++counters.forgotten;
}

void SchemeDetector::Impl::NoteProofs() {
  if (!std::exchange(proofs_changed_, false)) return;
  verdict.kinds = proofs_.states();
  verdict.lookahead = proofs_.lookahead();
  counters.kinds = proofs_.counters();
}

void SchemeDetector::Impl::SetVerdict(SchemeState state, std::string reason) {
  verdict.state = state;
  verdict.scheme = scheme_;
  verdict.reason = std::move(reason);
}

void SchemeDetector::Impl::OnClear() {
  root_.until_sample = behind_.until_sample = spans_.until_sample = 0;
  proofs_.RestartTurns();
  verified_.Clear();
}

void SchemeDetector::Impl::Restart() {
  ForgetScheme();
  root_ = behind_ = spans_ = Position();
  verified_.Clear();
  carries_tokens_ = false;
  tokenless_ = 0;
  SetVerdict(SchemeState::kUnknown, "no testable store at the start of a prompt was seen yet");
  NoteProofs();
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
  if (cleared && TierOf(cleared->medium) == Tier::kGpu) impl_->OnClear();
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
      "other_tier", "no_hashes",      "no_tokens",       "token_pairs", "block_size",
      "sparse",     "unknown_parent", "unresolved_keys", "lookahead"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace kvcast
