// SPDX-License-Identifier: Apache-2.0
#include "kvcast/token_keys.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <unordered_set>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "router/group_catalogue.h"
#include "router/parked_spans.h"
#include "router/store_span.h"
#include "router/token_records.h"

namespace kvcast {

using router::Boundary;
using router::HeldCopies;
using router::kNoRecord;
using router::ParkedSpans;
using router::RecordId;
using router::SpanContent;
using router::StoreSpan;
using router::TokenRecord;
using router::TokenRecords;

namespace {

using Link = TokenRecord::Link;
using State = TokenRecord::State;

// More ambiguous contents than this, and nothing new of the source is believed.
constexpr size_t kMaxAmbiguousKeys = 65536;

// What of an event the index reads, without hashes.
BlockStored PlaceOf(const BlockStored& event) {
  BlockStored place;
  place.block_size = event.block_size;
  place.medium = event.medium;
  place.group_idx = event.group_idx;
  place.kv_cache_spec_kind = event.kv_cache_spec_kind;
  place.kv_cache_spec_sliding_window = event.kv_cache_spec_sliding_window;
  place.locality = event.locality;
  place.ownership = event.ownership;
  place.session_id = event.session_id;
  return place;
}

// nullopt: no group that the index could hold.
std::optional<uint8_t> GroupOf(const std::optional<int64_t>& group_idx) {
  const int64_t group = group_idx.value_or(0);
  if (group < 0 || group >= kMaxGroups) return std::nullopt;
  return static_cast<uint8_t>(group);
}

}  // namespace

class TokenKeys::Impl {
 public:
  explicit Impl(TokenKeysConfig config);

  EventBatch Rekey(const EventBatch& batch);
  std::optional<Unresolved> WhyUnresolved(const BlockHash& hash) const;
  TokenKeysCounters counters();
  TokenKeysConfig config;
  TokenKeysCounters past;

 private:
  void Take(const BlockStored& event);
  void Take(const BlockRemoved& event);
  void Take(const AllBlocksCleared& event);

  std::optional<StoreSpan> PinSpan(const BlockStored& event);
  void UnpinSpan(const StoreSpan& span);
  void Learn(const StoreSpan& span);
  // False: a conflict changed what is known.
  bool LearnOnce(const StoreSpan& span);
  void Assign(const StoreSpan& span, const SpanContent& content, size_t boundary, RecordId id);
  void SetLink(const StoreSpan& span, const SpanContent& content, size_t boundary,
               TokenRecord& record);
  void Resolve(RecordId id, const Boundary& boundary, int64_t position, int64_t block_size);
  bool Name(RecordId id, int64_t block_size);
  void Park(StoreSpan span);
  void TryWaiting();
  void Hold(const StoreSpan& span, Tier tier, uint8_t group);

  void Distrust(RecordId id);
  void DistrustDescendants();
  void DistrustRule();

  void Announce(const TokenRecord& record);
  void Withdraw(const TokenRecord& record);
  void NoteBlockSize(int64_t size);
  uint64_t NameKey(uint64_t key, int64_t block_size) const;
  void Forget(const TokenRecord& record);

  TokenRecords records_;
  ParkedSpans parked_;
  // The one engine hash of a content, per block size: engines before 2026-06 name a prefix anew
  // for each.
  absl::flat_hash_map<uint64_t, RecordId> names_;
  std::vector<int64_t> block_sizes_;
  std::unordered_set<uint64_t> ambiguous_;
  std::map<std::pair<Tier, uint8_t>, BlockStored> places_;
  std::deque<RecordId> news_;  // whose waiting spans are to be tried again
  int64_t unit_ = 0;
  EventBatch out_;
};

TokenKeys::Impl::Impl(TokenKeysConfig given)
    : config(std::move(given)),
      records_(std::max<size_t>(config.hashes_max, 1),
               [this](const TokenRecord& record) { Forget(record); }),
      parked_(config.parked_stores_max, config.parked_tokens_max),
      unit_(config.hash_block_size) {
  for (const GroupSpec& group : config.groups) NoteBlockSize(group.block_size);
  if (config.sparse_rule && config.sparse_rule->alignment <= 0) config.sparse_rule.reset();
}

EventBatch TokenKeys::Impl::Rekey(const EventBatch& batch) {
  out_ = EventBatch{batch.ts, {}, batch.data_parallel_rank};
  for (const Event& event : batch.events) {
    std::visit([this](const auto& one) { Take(one); }, event);
  }
  return std::exchange(out_, {});
}

void TokenKeys::Impl::NoteBlockSize(int64_t size) {
  if (size < 1 || size > kMaxBlockSize) return;
  if (config.hash_block_size == 0) unit_ = std::gcd(unit_, size);
  const bool known =
      std::find(block_sizes_.begin(), block_sizes_.end(), size) != block_sizes_.end();
  if (!known) block_sizes_.push_back(size);
}

void TokenKeys::Impl::Take(const BlockStored& event) {
  const Tier tier = router::TierOf(event.medium);
  const std::optional<uint8_t> group = GroupOf(event.group_idx);
  if (!group) {
    out_.events.push_back(PlaceOf(event));  // the index counts it
    return;
  }
  places_[{tier, *group}] = PlaceOf(event);
  std::optional<StoreSpan> span = PinSpan(event);
  if (!span) {
    past.refused_hashes += event.block_hashes.size();
    out_.events.push_back(PlaceOf(event));
    return;
  }
  if (span->blocks > 0) {
    NoteBlockSize(event.block_size);
    Learn(*span);
  }
  Hold(*span, tier, *group);
  Park(*std::move(span));
  TryWaiting();
}

// The event's records, pinned; nullopt if there is no room for them.
std::optional<StoreSpan> TokenKeys::Impl::PinSpan(const BlockStored& event) {
  StoreSpan span;
  const bool usable = router::HasUsableTokens(event);
  if (!usable && event.token_ids && !event.token_ids->empty()) ++past.bad_stores;
  span.event = PlaceOf(event);
  for (const BlockHash& hash : event.block_hashes) {
    const RecordId id = records_.Pin(hash);
    if (id == kNoRecord) {
      UnpinSpan(span);
      return std::nullopt;
    }
    span.hashes.push_back(id);
  }
  if (!usable || event.block_hashes.empty()) return span;
  const bool zero = event.parent_block_hash == BlockHash::FromUnsigned(0) &&
                    config.zero_parent_is_root &&
                    records_.Find(*event.parent_block_hash) == kNoRecord;
  if (event.parent_block_hash && !zero) {
    span.parent = records_.Pin(*event.parent_block_hash);
    if (span.parent == kNoRecord) {
      UnpinSpan(span);
      return std::nullopt;
    }
  }
  span.at_root = span.parent == kNoRecord && event.token_offset.value_or(0) == 0;
  span.event = event;
  span.event.block_hashes.clear();
  span.blocks =
      std::ssize(*event.token_ids) / (event.block_size * int64_t{event.tokens_per_position});
  return span;
}

void TokenKeys::Impl::UnpinSpan(const StoreSpan& span) {
  for (const RecordId id : span.hashes) records_.Unpin(id);
  if (span.parent != kNoRecord) records_.Unpin(span.parent);
}

void TokenKeys::Impl::Learn(const StoreSpan& span) {
  while (!LearnOnce(span)) {
  }
}

bool TokenKeys::Impl::LearnOnce(const StoreSpan& span) {
  const auto group = static_cast<size_t>(span.event.group_idx.value_or(0));
  const GroupSpec* spec = group < config.groups.size() ? &config.groups[group] : nullptr;
  const bool in_gpu = router::TierOf(span.event.medium) == Tier::kGpu;
  const SparseRule* rule = config.sparse_rule && in_gpu ? &*config.sparse_rule : nullptr;
  const SpanContent content = router::ReadSpan(span, records_, rule, spec, unit_);
  if (content.rule_refuted) {
    DistrustRule();
    return false;
  }
  if (content.inconsistent) {
    ++past.bad_stores;
    return true;
  }
  if (content.conflict != kNoRecord) {
    Distrust(content.conflict);
    DistrustDescendants();
    return false;
  }
  if (span.parent != kNoRecord) Assign(span, content, 0, span.parent);
  for (size_t i = 0; i < span.hashes.size(); ++i) {
    const int64_t block = content.blocks_of[i];
    TokenRecord& record = records_.at(span.hashes[i]);
    if (block != router::kNoBlock) {
      const bool fresh = record.state == State::kUnresolved;
      Assign(span, content, static_cast<size_t>(block) + 1, span.hashes[i]);
      record.by_rule |= fresh && content.by_rule;
    }
    if (record.state != State::kUnresolved) continue;
    record.reason = span.dense() ? Unresolved::kUnknownParent : Unresolved::kSparse;
  }
  return true;
}

// What the span tells of the record that ends at `boundary`.
void TokenKeys::Impl::Assign(const StoreSpan& span, const SpanContent& content, size_t boundary,
                             RecordId id) {
  const Boundary& found = content.boundaries[boundary];
  TokenRecord& record = records_.at(id);
  if (record.state == State::kUnresolved && found.known == Boundary::Known::kHidden) {
    record.state = State::kHidden;
    record.reason = found.reason;
    news_.push_back(id);
    return;
  }
  if (found.known != Boundary::Known::kYes || !content.start) return;
  const int64_t size = span.event.block_size;
  const bool fresh = record.state == State::kUnresolved;
  if (fresh) Resolve(id, found, *content.start + static_cast<int64_t>(boundary) * size, size);
  if (!fresh && record.resolved() && boundary > 0 && !Name(id, size)) return;
  if (record.resolved()) SetLink(span, content, boundary, record);
}

// Keeps what leads furthest back: states inside a block, else the block before.
void TokenKeys::Impl::SetLink(const StoreSpan& span, const SpanContent& content, size_t boundary,
                              TokenRecord& record) {
  const bool linked = record.span > 0 || record.link.id != kNoRecord;
  if (content.from_behind[boundary]) {
    if (linked) return;
    record.link_kind = Link::kInside;
    record.link = records_.RefTo(content.source[boundary]);
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
  record.link = before == kNoRecord ? router::RecordRef{} : records_.RefTo(before);
}

uint64_t TokenKeys::Impl::NameKey(uint64_t key, int64_t block_size) const {
  return key ^ (static_cast<uint64_t>(block_size) * 0x9E3779B97F4A7C15);
}

// The record is the only hash of its content. False: it is not, and both are given up.
bool TokenKeys::Impl::Name(RecordId id, int64_t block_size) {
  const uint64_t key = records_.at(id).key;
  const auto [it, added] = names_.try_emplace(NameKey(key, block_size), id);
  if (added || it->second == id) return true;
  const RecordId other = it->second;
  ambiguous_.insert(key);
  Distrust(other);
  Distrust(id);
  DistrustDescendants();
  return false;
}

void TokenKeys::Impl::Resolve(RecordId id, const Boundary& boundary, int64_t position,
                              int64_t block_size) {
  TokenRecord& record = records_.at(id);
  news_.push_back(id);
  if (ambiguous_.contains(boundary.state) || ambiguous_.size() >= kMaxAmbiguousKeys) {
    record.state = State::kHidden;
    record.reason = Unresolved::kConflict;
    return;
  }
  record.state = State::kResolved;
  record.key = boundary.state;
  record.position = position;
  if (!Name(id, block_size)) return;
  ++past.resolved;
  if (!record.held.empty()) ++past.resolved_late;
  Announce(record);
}

void TokenKeys::Impl::TryWaiting() {
  while (!news_.empty()) {
    const RecordId id = news_.front();
    news_.pop_front();
    for (const router::ParkId waiting : parked_.WaitingFor(id)) {
      if (!parked_.Has(waiting)) continue;
      StoreSpan span = parked_.Take(waiting);
      Learn(span);
      Park(std::move(span));
    }
  }
}

// Keeps the span while it may still tell something; else lets go of its records.
void TokenKeys::Impl::Park(StoreSpan span) {
  std::vector<RecordId> awaited;
  const auto await = [&](RecordId id) {
    if (records_.at(id).state == State::kUnresolved) awaited.push_back(id);
  };
  std::for_each(span.hashes.begin(), span.hashes.end(), await);
  if (span.blocks == 0 || awaited.empty()) {
    UnpinSpan(span);
    return;
  }
  if (span.parent != kNoRecord) await(span.parent);
  if (!parked_.CanHold(span)) {
    ++past.parked_dropped;
    UnpinSpan(span);
    return;
  }
  while (parked_.size() > 0 && parked_.IsFullFor(span)) {
    ++past.parked_dropped;
    UnpinSpan(parked_.TakeOldest());
  }
  parked_.Park(std::move(span), awaited);
}

void TokenKeys::Impl::Hold(const StoreSpan& span, Tier tier, uint8_t group) {
  BlockStored stored = PlaceOf(span.event);
  for (const RecordId id : span.hashes) {
    TokenRecord& record = records_.at(id);
    HeldCopies* held = record.FindHeld(tier, group);
    if (held == nullptr) held = &record.held.emplace_back(HeldCopies{0, tier, group});
    ++held->copies;
    if (record.resolved()) stored.block_hashes.push_back(BlockHash::FromUnsigned(record.key));
  }
  out_.events.push_back(std::move(stored));
}

void TokenKeys::Impl::Take(const BlockRemoved& event) {
  BlockRemoved removed = event;
  removed.block_hashes.clear();
  const Tier tier = router::TierOf(event.medium);
  const std::optional<uint8_t> group = GroupOf(event.group_idx);
  for (const BlockHash& hash : event.block_hashes) {
    const RecordId id = group ? records_.Find(hash) : kNoRecord;
    HeldCopies* held = id == kNoRecord ? nullptr : records_.at(id).FindHeld(tier, *group);
    if (held == nullptr) {
      ++past.unknown_removes;
      continue;
    }
    TokenRecord& record = records_.at(id);
    if (record.resolved()) removed.block_hashes.push_back(BlockHash::FromUnsigned(record.key));
    if (--held->copies > 0) continue;
    record.held.erase(held);
    records_.Settle(id);
  }
  if (!group || !removed.block_hashes.empty()) out_.events.push_back(std::move(removed));
}

void TokenKeys::Impl::Take(const AllBlocksCleared& event) {
  records_.ForEach([this](RecordId id, TokenRecord& record) {
    const auto in_gpu = [](const HeldCopies& held) { return held.tier == Tier::kGpu; };
    record.held.erase(std::remove_if(record.held.begin(), record.held.end(), in_gpu),
                      record.held.end());
    records_.Settle(id);
  });
  out_.events.push_back(event);
}

void TokenKeys::Impl::Announce(const TokenRecord& record) {
  for (const HeldCopies& held : record.held) {
    BlockStored stored = places_[{held.tier, held.group}];
    stored.block_hashes.assign(held.copies, BlockHash::FromUnsigned(record.key));
    out_.events.push_back(std::move(stored));
  }
}

void TokenKeys::Impl::Withdraw(const TokenRecord& record) {
  for (const HeldCopies& held : record.held) {
    const BlockStored& place = places_[{held.tier, held.group}];
    BlockRemoved removed;
    removed.block_hashes.assign(held.copies, BlockHash::FromUnsigned(record.key));
    removed.medium = place.medium;
    removed.group_idx = place.group_idx;
    out_.events.push_back(std::move(removed));
  }
}

void TokenKeys::Impl::Distrust(RecordId id) {
  TokenRecord& record = records_.at(id);
  if (record.resolved()) {
    Withdraw(record);
    Forget(record);
  }
  if (record.state != State::kHidden || record.reason != Unresolved::kConflict) ++past.conflicts;
  record.state = State::kHidden;
  record.reason = Unresolved::kConflict;
  news_.push_back(id);
}

// Gives up every hash whose content was learned from one that is given up, or from one that is
// forgotten, so that nobody can tell.
void TokenKeys::Impl::DistrustDescendants() {
  std::unordered_set<RecordId> sound;
  std::vector<RecordId> path;
  records_.ForEach([&](RecordId first, TokenRecord&) {
    path.clear();
    RecordId id = first;
    bool doubtful = false;
    while (records_.at(id).resolved() && !sound.contains(id)) {
      path.push_back(id);
      const TokenRecord& record = records_.at(id);
      if (record.link.id == kNoRecord) break;
      doubtful = records_.Get(record.link) == nullptr;
      if (doubtful) break;
      id = record.link.id;
      doubtful = !records_.at(id).resolved();
    }
    for (const RecordId visited : path) {
      if (doubtful) {
        Distrust(visited);
      } else {
        sound.insert(visited);
      }
    }
  });
}

void TokenKeys::Impl::DistrustRule() {
  config.sparse_rule.reset();
  records_.ForEach([this](RecordId id, TokenRecord& record) {
    if (record.by_rule && record.resolved()) Distrust(id);
  });
  DistrustDescendants();
}

void TokenKeys::Impl::Forget(const TokenRecord& record) {
  for (const int64_t size : block_sizes_) {
    const auto it = names_.find(NameKey(record.key, size));
    if (it != names_.end() && records_.at(it->second).hash == record.hash) names_.erase(it);
  }
}

std::optional<Unresolved> TokenKeys::Impl::WhyUnresolved(const BlockHash& hash) const {
  const RecordId id = records_.Find(hash);
  if (id == kNoRecord || records_.at(id).held.empty() || records_.at(id).resolved()) {
    return std::nullopt;
  }
  return records_.at(id).reason;
}

TokenKeysCounters TokenKeys::Impl::counters() {
  TokenKeysCounters counters = past;
  counters.hashes = records_.size();
  counters.parked_stores = parked_.size();
  counters.forgotten_hashes += records_.forgotten();
  records_.ForEach([&counters](RecordId, const TokenRecord& record) {
    if (record.held.empty() || record.resolved()) return;
    counters.unresolved_held[static_cast<size_t>(record.reason)] += record.held.size();
  });
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

void TokenKeys::Restart() {
  const TokenKeysCounters past = impl_->counters();
  auto fresh = std::make_unique<Impl>(impl_->config);
  fresh->past = past;
  impl_ = std::move(fresh);
}

std::optional<Unresolved> TokenKeys::WhyUnresolved(const BlockHash& hash) const {
  return impl_->WhyUnresolved(hash);
}
TokenKeysCounters TokenKeys::counters() const { return impl_->counters(); }

}  // namespace kvcast
