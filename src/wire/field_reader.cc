// SPDX-License-Identifier: Apache-2.0
#include "src/wire/field_reader.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "src/wire/utf8.h"

namespace kvcast::wire {
namespace {

std::span<const uint8_t> ContentOf(const Value& value) {
  return {value.data, static_cast<size_t>(value.number)};
}

}  // namespace

// Reserves memory for `count` values, but at most kTrustedBytes plus the number of remaining bytes,
// because the input may declare any count. The vector grows further as values arrive.
template <typename T>
void FieldReader::ReserveWithin(std::vector<T>& values, size_t count) const {
  constexpr size_t kTrustedBytes = 32 * 1024;
  values.reserve(std::min(count, (kTrustedBytes + in_.remaining()) / sizeof(T)));
}

bool FieldReader::AtTextArray() const {
  Reader ahead = in_;
  Value value;
  if (!ahead.Next(value) || value.kind != Kind::kArray || value.number == 0) return false;
  return ahead.Next(value) && value.kind == Kind::kText;
}

bool FieldReader::SkipComponents() {
  Kind kind;
  if (!PeekKind(kind)) return false;
  if (kind != Kind::kNil) ++component_fields_;
  return SkipUnknown();
}

bool FieldReader::SkipUnknown() {
  const uint32_t depth_used = kFieldDepth - 1;
  const uint32_t depth_left = depth_max_ > depth_used ? depth_max_ - depth_used : 0;
  ++unknown_fields_;
  switch (in_.SkipWithin(depth_left)) {
    case Reader::SkipResult::kOk:
      return true;
    case Reader::SkipResult::kTooDeep:
      return Fail(Reject::kLimit);
    case Reader::SkipResult::kMalformed:
      break;
  }
  return Fail(Reject::kBadValue);
}

bool FieldReader::ArrayOrNil(Value& head, uint32_t depth) {
  if (!Any(head)) return false;
  if (head.kind == Kind::kNil) return true;
  if (head.kind != Kind::kArray) return Fail(Reject::kBadType);
  return depth <= depth_max_ || Fail(Reject::kLimit);
}

bool FieldReader::ChargeBatch(uint64_t& left, uint64_t count) {
  if (count > left) {
    budget_.exceeded = true;
    return Fail(Reject::kLimit);
  }
  left -= count;
  return true;
}

bool FieldReader::ChargeHashes(uint64_t count) {
  if (count > limits_.max_hashes) return Fail(Reject::kLimit);
  return ChargeBatch(budget_.hashes, count);
}

bool FieldReader::ChargeTokens(uint64_t count) {
  if (count > limits_.max_tokens - event_tokens_) return Fail(Reject::kLimit);
  event_tokens_ += count;
  return ChargeBatch(budget_.tokens, count);
}

bool FieldReader::ChargeExtraKeys(uint64_t count) {
  if (count > limits_.max_extra_keys - event_extra_keys_) return Fail(Reject::kLimit);
  event_extra_keys_ += count;
  return ChargeBatch(budget_.extra_keys, count);
}

bool FieldReader::HashOf(const Value& value, BlockHash& hash) {
  switch (value.kind) {
    case Kind::kUnsigned:
      hash = BlockHash::FromUnsigned(value.number);
      return true;
    case Kind::kNegative:
      hash = BlockHash::FromSigned(static_cast<int64_t>(value.number));
      return true;
    case Kind::kBytes:
    case Kind::kText:  // some producers put raw digests into text
      if (value.number > limits_.max_hash_bytes) return Fail(Reject::kLimit);
      hash = BlockHash::FromBytes(ContentOf(value));
      return true;
    default:
      return Fail(Reject::kBadType);
  }
}

bool FieldReader::Hash(std::optional<BlockHash>& hash) {
  hash.reset();
  Value value;
  if (!Any(value)) return false;
  return value.kind == Kind::kNil || HashOf(value, hash.emplace());
}

bool FieldReader::Hashes(std::vector<BlockHash>& hashes) {
  Value value;
  if (!ArrayOrNil(value, kFieldDepth)) return false;
  if (value.kind == Kind::kNil) return Fail(Reject::kBadType);
  const size_t count = value.number;
  if (!ChargeHashes(count)) return false;
  hashes.clear();
  ReserveWithin(hashes, count);
  if (count == 1 && in_.AtUint64()) single_hash_ = in_.position();
  BlockHash hash;
  for (size_t i = 0; i < count; ++i) {
    if (uint64_t number = 0; in_.NextUint64(number)) {
      hashes.emplace_back(number);
      continue;
    }
    if (!Any(value) || !HashOf(value, hash)) return false;
    hashes.push_back(std::move(hash));
  }
  return true;
}

bool FieldReader::Token(TokenId& token) {
  Value value;
  if (!Any(value)) return false;
  if (!value.is_integer()) return Fail(Reject::kBadType);
  token = static_cast<int64_t>(value.number);
  const bool fits = (value.kind == Kind::kNegative) == (token < 0);
  return fits || Fail(Reject::kBadValue);
}

bool FieldReader::SingleTokens(size_t count, std::vector<TokenId>& tokens) {
  if (!ChargeTokens(count)) return false;
  ReserveWithin(tokens, count);
  constexpr size_t kRun = 1024;
  while (tokens.size() < count) {
    const size_t begin = tokens.size();
    const size_t run = std::min(count - begin, kRun);
    tokens.resize(begin + run);
    size_t done = in_.NextSmallIntegers(run, tokens.data() + begin);
    for (; done < run; ++done) {
      if (!Token(tokens[begin + done])) return false;
    }
  }
  return true;
}

bool FieldReader::SkippedTokens(size_t count, std::vector<TokenId>& tokens) {
  if (!ChargeTokens(count)) return false;
  size_t done = 0;
  while ((done += in_.SkipSmallIntegers(count - done)) < count) {
    TokenId token = 0;
    if (!Token(token)) return false;
    ++done;
  }
  // The tokens are allocated only after they were found in the input.
  tokens.assign(count, 0);
  return true;
}

bool FieldReader::TokenPairs(size_t count, std::vector<TokenId>& tokens) {
  if (kFieldDepth + 1 > depth_max_) return Fail(Reject::kLimit);
  if (!ChargeTokens(2 * static_cast<uint64_t>(count))) return false;
  ReserveWithin(tokens, 2 * count);
  for (size_t i = 0; i < count; ++i) {
    Value pair;
    TokenId first = 0;
    TokenId second = 0;
    if (!Any(pair)) return false;
    if (pair.kind != Kind::kArray || pair.number != 2) return Fail(Reject::kBadType);
    if (!Token(first) || !Token(second)) return false;
    tokens.push_back(first);
    tokens.push_back(second);
  }
  return true;
}

bool FieldReader::Tokens(BlockStored& event) {
  event.tokens_per_position = 1;
  Value head;
  if (!ArrayOrNil(head, kFieldDepth)) return false;
  if (head.kind == Kind::kNil) {
    event.token_ids.reset();
    return true;
  }
  if (!event.token_ids) event.token_ids.emplace();
  std::vector<TokenId>& tokens = *event.token_ids;
  tokens.clear();
  if (head.number == 0) return true;
  Kind first;
  if (!PeekKind(first)) return false;
  if (first != Kind::kArray) {
    return options_.token_ids ? SingleTokens(head.number, tokens)
                              : SkippedTokens(head.number, tokens);
  }
  event.tokens_per_position = 2;
  if (!TokenPairs(head.number, tokens)) return false;
  if (!options_.token_ids) std::fill(tokens.begin(), tokens.end(), 0);
  return true;
}

// Reads one inner list. The first inner list sets the width of all inner lists.
bool FieldReader::LookaheadList(LookaheadTokens& lookahead) {
  Value head;
  if (!Any(head)) return false;
  if (head.kind != Kind::kArray) return Fail(Reject::kBadType);
  if (lookahead_lists_++ == 0) lookahead.width = static_cast<int64_t>(head.number);
  if (static_cast<int64_t>(head.number) != lookahead.width) return Fail(Reject::kBadValue);
  if (!ChargeTokens(head.number)) return false;
  for (uint64_t i = 0; i < head.number; ++i) {
    TokenId token = 0;
    if (!Token(token)) return false;
    lookahead.token_ids.push_back(options_.token_ids ? token : 0);
  }
  return true;
}

bool FieldReader::Lookahead(std::optional<LookaheadTokens>& lookahead) {
  Value head;
  if (!ArrayOrNil(head, kFieldDepth)) return false;
  if (head.kind == Kind::kNil) {
    lookahead.reset();
    return true;
  }
  if (head.number > limits_.max_hashes) return Fail(Reject::kLimit);
  if (head.number > 0 && kFieldDepth + 1 > depth_max_) return Fail(Reject::kLimit);
  if (!lookahead) lookahead.emplace();
  lookahead->width = 0;
  lookahead->token_ids.clear();
  ReserveWithin(lookahead->token_ids, head.number);
  for (uint64_t i = 0; i < head.number; ++i) {
    if (!LookaheadList(*lookahead)) return false;
  }
  return true;
}

bool FieldReader::Integer(std::optional<int64_t>& number) {
  number.reset();
  Value value;
  if (!Any(value)) return false;
  if (value.kind == Kind::kNil) return true;
  if (!value.is_integer()) return Fail(Reject::kBadType);
  if (value.kind == Kind::kUnsigned && value.number > INT64_MAX) return Fail(Reject::kBadValue);
  number = static_cast<int64_t>(value.number);
  return true;
}

bool FieldReader::NonNegative(std::optional<int64_t>& number) {
  if (!Integer(number)) return false;
  return !number || *number >= 0 || Fail(Reject::kBadValue);
}

bool FieldReader::NonNegative(int64_t& number) {
  std::optional<int64_t> read;
  if (!NonNegative(read)) return false;
  if (!read) return Fail(Reject::kBadType);
  number = *read;
  return true;
}

bool FieldReader::TextOf(const Value& value, std::string& text) {
  if (value.kind != Kind::kText) return Fail(Reject::kBadType);
  if (value.number > limits_.max_string_bytes) return Fail(Reject::kLimit);
  if (!IsUtf8(value.as_view())) return Fail(Reject::kBadValue);
  text.assign(value.as_view());
  return true;
}

bool FieldReader::Text(std::optional<std::string>& text) {
  text.reset();
  Value value;
  if (!Any(value)) return false;
  return value.kind == Kind::kNil || TextOf(value, text.emplace());
}

bool FieldReader::ExtraKeyEntries(std::optional<std::vector<std::optional<ExtraKeys>>>& entries) {
  entries.reset();
  Value head;
  if (!ArrayOrNil(head, kFieldDepth)) return false;
  if (head.kind == Kind::kNil) return true;
  const size_t count = head.number;
  if (!ChargeExtraKeys(count)) return false;
  ReserveWithin(entries.emplace(), count);
  for (size_t i = 0; i < count; ++i) {
    Value entry;
    if (!ArrayOrNil(entry, kFieldDepth + 1)) return false;
    std::optional<ExtraKeys>& keys = entries->emplace_back();
    if (entry.kind == Kind::kNil) continue;
    if (!Items(entry.number, kFieldDepth + 1, keys.emplace())) return false;
  }
  return true;
}

// Reads the items of a list that itself is at `depth`.
bool FieldReader::Items(size_t count, uint32_t depth, std::vector<ExtraKey>& items) {
  if (!ChargeExtraKeys(count)) return false;
  ReserveWithin(items, count);
  for (size_t i = 0; i < count; ++i) {
    if (!Item(depth + 1, items.emplace_back())) return false;
  }
  return true;
}

bool FieldReader::Item(uint32_t depth, ExtraKey& key) {
  Value value;
  return Any(value) && ItemOf(value, depth, key);
}

bool FieldReader::ItemOf(const Value& value, uint32_t depth, ExtraKey& key) {
  switch (value.kind) {
    case Kind::kNil:
      key.value = std::monostate{};
      return true;
    case Kind::kBool:
      key.value = value.number != 0;
      return true;
    case Kind::kUnsigned:
      if (value.number > INT64_MAX) {
        key.value = value.number;
        return true;
      }
      [[fallthrough]];
    case Kind::kNegative:
      key.value = static_cast<int64_t>(value.number);
      return true;
    case Kind::kFloat:
      key.value = value.as_double();
      return true;
    case Kind::kText:
      return TextOf(value, key.value.emplace<std::string>());
    case Kind::kBytes:
      if (value.number > limits_.max_string_bytes) return Fail(Reject::kLimit);
      key.value = Bytes{std::string(value.as_view())};
      return true;
    case Kind::kArray:
      if (depth > depth_max_) return Fail(Reject::kLimit);
      return Items(value.number, depth, key.value.emplace<ExtraKeyList>().items);
    case Kind::kMap:
    case Kind::kExtension:
      break;
  }
  return Fail(Reject::kBadType);
}

bool FieldReader::Metadata(std::optional<std::vector<std::pair<std::string, ExtraKey>>>& metadata) {
  metadata.reset();
  Value head;
  if (!Any(head)) return false;
  if (head.kind == Kind::kNil) return true;
  if (head.kind != Kind::kMap) return Fail(Reject::kBadType);
  if (kFieldDepth > depth_max_) return Fail(Reject::kLimit);
  const size_t pairs = head.number;
  if (!ChargeExtraKeys(pairs)) return false;
  ReserveWithin(metadata.emplace(), pairs);
  for (size_t i = 0; i < pairs; ++i) {
    auto& [key, value] = metadata->emplace_back();
    Value key_value;
    if (!Any(key_value) || !TextOf(key_value, key)) return false;
    if (!Item(kFieldDepth + 1, value)) return false;
  }
  return true;
}

}  // namespace kvcast::wire
