// FieldReader: reads the values of event fields within the limits of the batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/wire/wire.h"
#include "src/wire/reader.h"

namespace kvcast::wire {

// The part of the batch limits that is still available.
struct BatchBudget {
  uint64_t hashes;
  uint64_t tokens;
  uint64_t extra_keys;
  bool exceeded = false;

  explicit BatchBudget(const WireLimits& limits)
      : hashes(limits.max_batch_hashes),
        tokens(limits.max_batch_tokens),
        extra_keys(limits.max_batch_extra_keys) {}
};

// Reads the values of one event. A call that returns false has recorded a reason and leaves the
// reader's position undefined.
class FieldReader {
 public:
  // The nesting level of an event's fields: batch, list of events, event, field.
  static constexpr uint32_t kFieldDepth = 4;

  FieldReader(Reader& in, const WireLimits& limits, const DecodeOptions& options,
              BatchBudget& budget)
      : in_(in),
        limits_(limits),
        options_(options),
        budget_(budget),
        depth_max_(DepthMax(limits)) {}

  // The deepest nesting of containers that is read: max_depth, but at most 64, because reading
  // recurses.
  static uint32_t DepthMax(const WireLimits& limits) { return std::min(limits.max_depth, 64u); }

  Reject reason() const { return reason_; }
  uint64_t unknown_fields() const { return unknown_fields_; }
  uint64_t component_fields() const { return component_fields_; }
  // See DecodeCounts.
  uint64_t skipped_fields() const { return skipped_fields_; }
  void NoteSkippedField() { ++skipped_fields_; }
  // See EventContext.
  const uint8_t* single_hash() const { return single_hash_; }
  // Number of lists that Lookahead read.
  size_t lookahead_lists() const { return lookahead_lists_; }
  bool Fail(Reject reason) {
    reason_ = reason;
    return false;
  }

  // Reads the next value. For a container, reads only the head.
  bool Any(Value& value) { return in_.Next(value) || Fail(Reject::kBadValue); }
  // Returns the kind of the next value without consuming the value. All integers are kUnsigned.
  bool PeekKind(Kind& kind) { return in_.PeekKind(kind) || Fail(Reject::kBadValue); }
  // True if the next value is an array that starts with text.
  bool AtTextArray() const;
  // Skips one value.
  bool Skip() { return in_.Skip() || Fail(Reject::kBadValue); }
  // Skips one value of an unknown field. Counts the field and applies the depth limit.
  bool SkipUnknown();
  // Skips the names of a block's components, or nil.
  bool SkipComponents();

  // Each function reads one field. A nil clears an optional target.
  bool Hash(std::optional<BlockHash>& hash);
  bool Hashes(std::vector<BlockHash>& hashes);
  // Sets token_ids and tokens_per_position.
  bool Tokens(BlockStored& event);
  bool Lookahead(std::optional<LookaheadTokens>& lookahead);
  bool Integer(std::optional<int64_t>& number);
  bool NonNegative(int64_t& number);
  bool NonNegative(std::optional<int64_t>& number);
  bool Text(std::optional<std::string>& text);
  bool ExtraKeyEntries(std::optional<std::vector<std::optional<ExtraKeys>>>& entries);
  bool Metadata(std::optional<std::vector<std::pair<std::string, ExtraKey>>>& metadata);

 private:
  bool ArrayOrNil(Value& head, uint32_t depth);
  bool HashOf(const Value& value, BlockHash& hash);
  bool TextOf(const Value& value, std::string& text);
  bool SingleTokens(size_t count, std::vector<TokenId>& tokens);
  bool SkippedTokens(size_t count, std::vector<TokenId>& tokens);
  bool TokenPairs(size_t count, std::vector<TokenId>& tokens);
  bool LookaheadList(LookaheadTokens& lookahead);
  bool Token(TokenId& token);
  bool Items(size_t count, uint32_t depth, std::vector<ExtraKey>& items);
  bool Item(uint32_t depth, ExtraKey& key);
  bool ItemOf(const Value& value, uint32_t depth, ExtraKey& key);

  bool ChargeHashes(uint64_t count);
  bool ChargeTokens(uint64_t count);
  bool ChargeExtraKeys(uint64_t count);
  bool ChargeBatch(uint64_t& left, uint64_t count);
  template <typename T>
  void ReserveWithin(std::vector<T>& values, size_t count) const;

  Reader& in_;
  const WireLimits& limits_;
  const DecodeOptions& options_;
  BatchBudget& budget_;
  const uint32_t depth_max_;
  uint64_t event_tokens_ = 0;
  uint64_t event_extra_keys_ = 0;
  uint64_t unknown_fields_ = 0;
  uint64_t component_fields_ = 0;
  uint64_t skipped_fields_ = 0;
  const uint8_t* single_hash_ = nullptr;
  size_t lookahead_lists_ = 0;
  Reject reason_ = Reject::kBadValue;
};

}  // namespace kvcast::wire
