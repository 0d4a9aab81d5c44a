// SPDX-License-Identifier: Apache-2.0
#include "kvcast/token_keys.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "router/group_catalogue.h"
#include "router/key_ledger.h"
#include "router/parked_spans.h"
#include "router/store_span.h"

namespace kvcast {

using router::Boundary;
using router::KeyLedger;
using router::kNoRecord;
using router::ParkedSpans;
using router::RecordId;
using router::SpanContent;
using router::StoreSpan;
using router::TokenRecord;

namespace {

using Link = TokenRecord::Link;
using State = TokenRecord::State;

// Of reading one store.
constexpr int kMaxTries = 16;

}  // namespace

class TokenKeys::Impl {
 public:
  explicit Impl(TokenKeysConfig config);

  EventBatch Rekey(const EventBatch& batch);
  EventBatch Snapshot() { return {0, ledger_.AnnounceAll(), std::nullopt}; }
  void NoteLeftOut(std::span<const size_t> positions) { ledger_.Unhold(positions); }
  std::optional<Unresolved> WhyUnresolved(const BlockHash& hash) const;
  TokenKeysCounters counters() const;

  TokenKeysConfig config;
  TokenKeysCounters past;  // of things that happened

 private:
  void Take(const BlockStored& event);
  void Take(const BlockRemoved& event) { ledger_.Remove(event); }
  void Take(const AllBlocksCleared& event) { ledger_.Clear(event); }

  std::optional<StoreSpan> PinSpan(const BlockStored& event);
  bool PinContent(const BlockStored& event, StoreSpan& span);
  void UnpinSpan(const StoreSpan& span);
  void NoteBlockSize(int64_t size);
  void Learn(const StoreSpan& span);
  bool LearnOnce(const StoreSpan& span);
  bool Assign(const StoreSpan& span, const SpanContent& content, size_t boundary, RecordId id);
  void SetLink(const StoreSpan& span, const SpanContent& content, size_t boundary,
               TokenRecord& record);
  void Park(StoreSpan span);
  void TryWaiting();

  KeyLedger ledger_;
  ParkedSpans parked_;
  int64_t unit_ = 0;  // tokens per engine hash; 0: not known
};

TokenKeys::Impl::Impl(TokenKeysConfig given)
    : config(std::move(given)),
      ledger_(config),
      parked_(config.parked_stores_max, config.parked_tokens_max),
      unit_(config.hash_block_size) {
  for (const GroupSpec& group : config.groups) NoteBlockSize(group.block_size);
  if (config.sparse_rule && config.sparse_rule->alignment <= 0) config.sparse_rule.reset();
}

EventBatch TokenKeys::Impl::Rekey(const EventBatch& batch) {
  for (const Event& event : batch.events) {
    std::visit([this](const auto& one) { Take(one); }, event);
  }
  return {batch.ts, ledger_.TakeOutput(), batch.data_parallel_rank};
}

void TokenKeys::Impl::NoteBlockSize(int64_t size) {
  if (config.hash_block_size == 0 && size >= 1) unit_ = std::gcd(unit_, size);
}

void TokenKeys::Impl::Take(const BlockStored& event) {
  std::optional<StoreSpan> span;
  if (router::HoldableGroup(event.group_idx)) {
    span = PinSpan(event);
    if (!span) past.refused_hashes += event.block_hashes.size();
  }
  if (!span) {
    ledger_.PassEmpty(event);
    return;
  }
  if (span->blocks > 0) {
    NoteBlockSize(event.block_size);
    Learn(*span);
  }
  ledger_.Hold(event, span->hashes);
  Park(*std::move(span));
  TryWaiting();
}

// The event's records, pinned; nullopt if there is no room for them.
std::optional<StoreSpan> TokenKeys::Impl::PinSpan(const BlockStored& event) {
  StoreSpan span;
  for (const BlockHash& hash : event.block_hashes) {
    const RecordId id = ledger_.records().Pin(hash);
    if (id == kNoRecord) {
      UnpinSpan(span);
      return std::nullopt;
    }
    span.hashes.push_back(id);
  }
  if (router::HasUsableTokens(event)) {
    if (!event.block_hashes.empty() && !PinContent(event, span)) {
      UnpinSpan(span);
      return std::nullopt;
    }
  } else if (event.token_ids && !event.token_ids->empty()) {
    ++past.bad_stores;
  }
  return span;
}

bool TokenKeys::Impl::PinContent(const BlockStored& event, StoreSpan& span) {
  std::optional<BlockHash> parent = event.parent_block_hash;
  const bool zero = config.zero_parent_is_root && parent == BlockHash::FromUnsigned(0);
  if (zero && ledger_.records().Find(*parent) == kNoRecord) parent.reset();
  if (parent) {
    span.parent = ledger_.records().Pin(*parent);
    if (span.parent == kNoRecord) return false;
  }
  span.at_root = !parent && event.token_offset.value_or(0) == 0;
  span.event = event;
  span.event.block_hashes.clear();
  span.event.session_id.reset();
  span.blocks =
      std::ssize(*event.token_ids) / (event.block_size * int64_t{event.tokens_per_position});
  return true;
}

void TokenKeys::Impl::UnpinSpan(const StoreSpan& span) {
  for (const RecordId id : span.hashes) ledger_.records().Unpin(id);
  if (span.parent != kNoRecord) ledger_.records().Unpin(span.parent);
}

void TokenKeys::Impl::Learn(const StoreSpan& span) {
  for (int tries = 1; !LearnOnce(span); ++tries) {
    if (tries < kMaxTries) continue;
    // So much of it is wrong that finding each piece would cost more than it is worth.
    for (const RecordId id : span.hashes) ledger_.Refute(id);
    return;
  }
}

// False: what was believed was wrong, and is given up; to be done again.
bool TokenKeys::Impl::LearnOnce(const StoreSpan& span) {
  const auto group = static_cast<size_t>(span.event.group_idx.value_or(0));
  const GroupSpec* spec = group < config.groups.size() ? &config.groups[group] : nullptr;
  const bool in_gpu = router::TierOf(span.event.medium) == Tier::kGpu;
  const SparseRule* rule = config.sparse_rule && in_gpu ? &*config.sparse_rule : nullptr;
  const SpanContent content = router::ReadSpan(span, ledger_.records(), rule, spec, unit_);
  if (content.rule_refuted) {
    config.sparse_rule.reset();
    ++past.rules_refuted;
    ledger_.RefuteRule();
    return false;
  }
  if (content.inconsistent) {
    ++past.bad_stores;
    return true;
  }
  if (content.conflict != kNoRecord) {
    ledger_.Refute(content.conflict);
    return false;
  }
  if (span.parent != kNoRecord && !Assign(span, content, 0, span.parent)) return false;
  for (size_t i = 0; i < span.hashes.size(); ++i) {
    const int64_t block = content.blocks_of[i];
    TokenRecord& record = ledger_.records().at(span.hashes[i]);
    const bool was_resolved = record.resolved();
    if (block != router::kNoBlock) {
      const auto end = static_cast<size_t>(block) + 1;
      if (!Assign(span, content, end, span.hashes[i])) return false;
      record.by_rule |= !was_resolved && content.by_rule;
    }
    if (record.state != State::kUnresolved) continue;
    ledger_.SetReason(span.hashes[i],
                      span.dense() ? Unresolved::kUnknownParent : Unresolved::kSparse);
  }
  return true;
}

// What the span tells of the record that ends at `boundary`. False: something proved ambiguous, so
// that `content` no longer holds.
bool TokenKeys::Impl::Assign(const StoreSpan& span, const SpanContent& content, size_t boundary,
                             RecordId id) {
  const Boundary& found = content.boundaries[boundary];
  TokenRecord& record = ledger_.records().at(id);
  const int64_t size = span.event.block_size;
  if (found.known == Boundary::Known::kHidden) {
    if (record.state == State::kUnresolved) ledger_.Hide(id, found.reason);
    return true;
  }
  if (found.known == Boundary::Known::kNo || !content.start) return true;
  if (record.resolved()) {
    if (boundary > 0 && !ledger_.Confirm(id, found.state, size)) return false;
  } else {
    const int64_t position = *content.start + static_cast<int64_t>(boundary) * size;
    if (!ledger_.Resolve(id, found.state, position, size)) return false;
    const bool behind = boundary == 0 || content.from_behind[boundary];
    const RecordId origin = content.source[behind ? boundary : boundary - 1];
    ledger_.records().SetOrigin(id, origin);
  }
  SetLink(span, content, boundary, record);
  return true;
}

// Keeps what leads furthest back: states inside a block, else the block before.
void TokenKeys::Impl::SetLink(const StoreSpan& span, const SpanContent& content, size_t boundary,
                              TokenRecord& record) {
  const bool linked = record.span > 0 || record.link.id != kNoRecord;
  if (content.from_behind[boundary]) {
    if (linked) return;
    record.link_kind = Link::kInside;
    record.link = ledger_.records().RefTo(content.source[boundary]);
    return;
  }
  if (boundary == 0) return;
  const std::vector<router::ContentState>& inner = content.inner[boundary - 1];
  const bool better = record.link_kind == Link::kInside || inner.size() > record.inner.size();
  if (linked && !better) return;
  if (content.boundaries[boundary - 1].known != Boundary::Known::kYes) return;
  const RecordId before = content.source[boundary - 1];
  record.span = span.event.block_size;
  record.inner = inner;
  record.link_kind = before == kNoRecord ? Link::kNone : Link::kParent;
  record.link = before == kNoRecord ? router::RecordRef{} : ledger_.records().RefTo(before);
}

// Keeps the span while it may still tell something; else lets go of its records.
void TokenKeys::Impl::Park(StoreSpan span) {
  std::vector<RecordId> awaited;
  const auto await = [&](RecordId id) {
    if (ledger_.records().at(id).state == State::kUnresolved) awaited.push_back(id);
  };
  std::for_each(span.hashes.begin(), span.hashes.end(), await);
  if (span.blocks == 0 || awaited.empty()) {
    UnpinSpan(span);
    return;
  }
  if (span.parent != kNoRecord) await(span.parent);
  while (parked_.size() > 0 && !parked_.Has(span) && parked_.CanHold(span) &&
         parked_.IsFullFor(span)) {
    ++past.parked_dropped;
    UnpinSpan(parked_.TakeOldest());
  }
  if (parked_.Has(span)) {
    UnpinSpan(span);  // one of a kind tells as much
  } else if (parked_.CanHold(span)) {
    parked_.Park(std::move(span), awaited);
  } else {
    ++past.parked_dropped;
    UnpinSpan(span);
  }
}

void TokenKeys::Impl::TryWaiting() {
  std::set<router::ParkId> waiting;
  const auto gather = [&] {
    waiting.clear();
    while (const std::optional<RecordId> changed = ledger_.NextChanged()) {
      parked_.AddWaitingFor(*changed, waiting);
    }
    return !waiting.empty();
  };
  while (gather()) {
    for (const router::ParkId id : waiting) {
      if (!parked_.Has(id)) continue;  // left to make room
      StoreSpan span = parked_.Take(id);
      Learn(span);
      Park(std::move(span));
    }
  }
}

std::optional<Unresolved> TokenKeys::Impl::WhyUnresolved(const BlockHash& hash) const {
  const RecordId id = ledger_.records().Find(hash);
  if (id == kNoRecord) return std::nullopt;
  const TokenRecord& record = ledger_.records().at(id);
  if (record.held.empty() || record.resolved()) return std::nullopt;
  return record.reason;
}

TokenKeysCounters TokenKeys::Impl::counters() const {
  TokenKeysCounters counters = past;
  counters.parked_stores = parked_.size();
  ledger_.AddTo(counters);
  return counters;
}

std::string_view UnresolvedName(Unresolved reason) {
  constexpr std::array<std::string_view, kUnresolvedReasons> kNames = {
      "no_tokens", "unknown_parent", "sparse", "hidden_content", "conflict"};
  return kNames[static_cast<size_t>(reason)];
}

TokenKeys::TokenKeys(TokenKeysConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
TokenKeys::~TokenKeys() = default;
TokenKeys::TokenKeys(TokenKeys&&) noexcept = default;
TokenKeys& TokenKeys::operator=(TokenKeys&&) noexcept = default;

EventBatch TokenKeys::Rekey(const EventBatch& batch) { return impl_->Rekey(batch); }

EventBatch TokenKeys::Snapshot() const { return impl_->Snapshot(); }

void TokenKeys::NoteLeftOut(std::span<const size_t> positions) { impl_->NoteLeftOut(positions); }

void TokenKeys::Restart() {
  auto fresh = std::make_unique<Impl>(impl_->config);
  fresh->past = impl_->counters();
  fresh->past.unresolved_held = {};
  impl_ = std::move(fresh);
}

std::optional<Unresolved> TokenKeys::WhyUnresolved(const BlockHash& hash) const {
  return impl_->WhyUnresolved(hash);
}
TokenKeysCounters TokenKeys::counters() const { return impl_->counters(); }

}  // namespace kvcast
