// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/packed_query.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

#include "router/service/json/json_fields.h"
#include "src/wire/reader.h"

namespace kvcast::router {
namespace {

using wire::Kind;
using wire::Reader;
using wire::Value;

constexpr char kEmptyArray = '\x90';

Status Broken() { return BadField("body: not MessagePack"); }

Status ReadTokens(Reader& in, uint64_t count, Query& query) {
  if (count == 0) return BadField("tokens: must be a non-empty array");
  if (count > kMaxQueryTokens) return TooLong("tokens", kMaxQueryTokens);
  query.tokens.resize(count);
  for (size_t i = 0; i < count; ++i) {
    i += in.NextSmallIntegers(count - i, query.tokens.data() + i);
    if (i == count) break;
    Value value;
    if (!in.Next(value)) return Broken();
    if (value.kind != Kind::kUnsigned || value.number > uint64_t{INT64_MAX}) {
      return BadField(ElementName("tokens", i) + ": not a token id");
    }
    query.tokens[i] = static_cast<TokenId>(value.number);
  }
  query.prompt_tokens = std::ssize(query.tokens);
  return Status();
}

std::optional<BlockHash> PromptHash(const Value& value) {
  switch (value.kind) {
    case Kind::kUnsigned:
      return BlockHash::FromUnsigned(value.number);
    case Kind::kNegative:
      return BlockHash::FromSigned(static_cast<int64_t>(value.number));
    case Kind::kBytes:
      if (value.number == 0 || value.number > kMaxHexHashBytes) return std::nullopt;
      return BlockHash::FromBytes({value.data, static_cast<size_t>(value.number)});
    case Kind::kText:
      if (const auto bytes = BytesFromHex(value.as_view())) return BlockHash::FromBytes(*bytes);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Status ReadHashes(Reader& in, uint64_t count, Query& query) {
  if (count > kMaxQueryHashes) return TooLong("hashes", kMaxQueryHashes);
  query.by_tokens = false;
  query.hashes.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    Value value;
    if (!in.Next(value)) return Broken();
    const std::optional<BlockHash> hash = PromptHash(value);
    if (!hash)
      return BadField(ElementName("hashes", i) + ": neither an integer, nor bytes, nor hex digits");
    query.hashes.push_back(*hash);
  }
  return Status();
}

}  // namespace

bool IsPackedType(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find_first_of("; \t"));
  const auto is = [type](std::string_view name) {
    return std::equal(type.begin(), type.end(), name.begin(), name.end(), [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) == b;
    });
  };
  return is("application/msgpack") || is("application/x-msgpack") || is("application/vnd.msgpack");
}

Result<Prompt> TakePackedPrompt(std::string_view body, int max_depth) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(body.data());
  Reader in({bytes, body.size()});
  Value map;
  if (!in.Next(map)) return Broken();
  if (map.kind != Kind::kMap) return BadField("body: must be a map");
  const auto offset = [&] { return static_cast<size_t>(in.position() - bytes); };
  Prompt prompt;
  bool taken = false;
  size_t kept = 0;  // `rest` has the bytes of the body before this offset, except the prompt
  for (uint64_t i = 0; i < map.number; ++i) {
    Value name;
    if (!in.Next(name)) return Broken();
    if (name.kind != Kind::kText) return BadField("body: a member's name is not a string");
    const bool is_tokens = name.as_view() == "tokens";
    if (!is_tokens && name.as_view() != "hashes") {
      const auto skipped = in.SkipWithin(static_cast<uint32_t>(max_depth - 1));
      if (skipped == Reader::SkipResult::kTooDeep) return BadField("body: nested too deep");
      if (skipped == Reader::SkipResult::kMalformed) return Broken();
      continue;
    }
    if (taken) return BadField("exactly one of tokens and hashes is required");
    taken = true;
    prompt.rest.append(body, kept, offset() - kept).push_back(kEmptyArray);
    Value array;
    if (!in.Next(array)) return Broken();
    if (array.kind != Kind::kArray) {
      return BadField(std::string(name.as_view()) + ": must be an array");
    }
    Status status = is_tokens ? ReadTokens(in, array.number, prompt.query)
                              : ReadHashes(in, array.number, prompt.query);
    if (!status.ok()) return status;
    kept = offset();
  }
  if (!in.at_end()) return Broken();
  if (!taken) return BadField("exactly one of tokens and hashes is required");
  prompt.rest.append(body, kept);
  if (Status status = CheckRestBytes(prompt.rest.size()); !status.ok()) return status;
  return prompt;
}

}  // namespace kvcast::router
