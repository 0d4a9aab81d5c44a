// SPDX-License-Identifier: Apache-2.0
#include "src/engine/event_log.h"

#include <utility>

namespace kvcast::engine {
namespace {

void FillExtraKeys(const StoredSpan& span, const ChainForm& form,
                   std::vector<std::optional<ExtraKeys>>& keys) {
  keys.assign(span.block_begins.size(), std::nullopt);
  const HashInputs& inputs = span.request.hash_inputs;
  if (inputs.empty()) return;
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t begin = span.block_begins[i];
    ExtraKeys extra = ExtraKeysFor(inputs, begin, begin + span.block_size, form);
    if (!extra.empty()) keys[i] = std::move(extra);
  }
}

// The value of an optional, which is created if it does not exist. An existing value is kept, so
// that its capacity is reused.
template <typename T>
T& Engaged(std::optional<T>& value) {
  return value ? *value : value.emplace();
}

}  // namespace

EventLog::EventLog(const EventOptions& options, std::string medium, int64_t lookahead)
    : enabled_(options.enabled),
      form_(options.hash_form),
      medium_(std::move(medium)),
      name_cleared_tier_(options.name_cleared_tier),
      lookahead_(lookahead) {
  removed_event_.medium = medium_;
}

BlockStored& EventLog::NewStored(GroupIdx group) {
  if (num_stored_ == stored_.size()) stored_.emplace_back();
  items_.push_back({Kind::kStored, group, 1});
  ++num_events_;
  return stored_[num_stored_++];
}

void EventLog::AddStored(const StoredSpan& span, std::optional<int64_t> token_offset) {
  if (enabled_) Describe(span, token_offset, NewStored(span.group));
}

void EventLog::AddStored(const BlockStored& event) {
  if (enabled_) NewStored(GroupIdx(static_cast<uint32_t>(event.group_idx.value_or(0)))) = event;
}

void EventLog::Describe(const StoredSpan& span, std::optional<int64_t> token_offset,
                        BlockStored& event) const {
  const CacheRequest& request = span.request;
  event.medium = medium_;
  event.block_hashes.clear();
  for (const Digest* digest : span.digests) {
    event.block_hashes.push_back(ToEventHash(*digest, form_));
  }
  event.parent_block_hash.reset();
  if (span.parent != nullptr) event.parent_block_hash = ToEventHash(*span.parent, form_);
  Engaged(event.token_ids)
      .assign(request.tokens.begin() + span.begin_token, request.tokens.begin() + span.end_token);
  event.block_size = span.block_size;
  event.lora_id = request.lora_id;
  event.lora_name.reset();
  if (!request.hash_inputs.lora_name.empty()) event.lora_name = request.hash_inputs.lora_name;
  if (span.digests.empty()) {
    event.extra_keys.reset();
  } else {
    // Events contain extra keys without tags, even if the chain has tagged keys.
    FillExtraKeys(span, {.lookahead = lookahead_}, Engaged(event.extra_keys));
  }
  event.group_idx = span.group.value;
  event.session_id = request.session_id;
  event.token_offset = token_offset;
  if (lookahead_ > 0) DescribeLookahead(span, event);
}

void EventLog::DescribeLookahead(const StoredSpan& span, BlockStored& event) const {
  LookaheadTokens& lookahead = Engaged(event.lookahead);
  lookahead.width = span.block_begins.empty() ? 0 : lookahead_;
  lookahead.token_ids.clear();
  for (const int64_t begin : span.block_begins) {
    const auto after_block = span.request.tokens.begin() + begin + span.block_size;
    lookahead.token_ids.insert(lookahead.token_ids.end(), after_block, after_block + lookahead_);
  }
}

void EventLog::AddRemoved(const BlockKey& key) {
  if (!enabled_) return;
  removed_.push_back(key.digest);
  ++num_events_;
  const bool same =
      !items_.empty() && items_.back().kind == Kind::kRemoved && items_.back().group == key.group;
  if (same) {
    ++items_.back().count;
  } else {
    items_.push_back({Kind::kRemoved, key.group, 1});
  }
}

void EventLog::AddCleared() {
  if (!enabled_) return;
  items_.push_back({Kind::kCleared, GroupIdx(0), 1});
  ++num_events_;
}

void EventLog::ReadRemoved(const Item& item, size_t first) {
  removed_event_.block_hashes.clear();
  for (size_t i = first; i < first + item.count; ++i) {
    removed_event_.block_hashes.push_back(ToEventHash(removed_[i], form_));
  }
  removed_event_.group_idx = item.group.value;
}

void EventLog::Clear() {
  items_.clear();
  num_stored_ = 0;
  removed_.clear();
  num_events_ = 0;
}

}  // namespace kvcast::engine
