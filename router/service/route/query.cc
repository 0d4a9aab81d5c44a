// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/query.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "router/service/json/json_fields.h"
#include "router/service/json/number_array.h"
#include "router/service/route/packed_query.h"

namespace kvcast::router {
namespace {

// The deepest valid query: the object, its arrays, their elements, and the members of an element.
constexpr int kQueryDepth = 4;

Status ReadRouteMember(const std::string& name, const Json& value, Query& query) {
  if (name == "request_id") return ReadText(value, name, query.request_id);
  if (name == "book") return ReadBool(value, name, query.book);
  if (name == "temperature") {
    return ReadNumber(value, name, 0, kMaxTemperature, query.temperature.emplace());
  }
  if (name == "ttft_slo_ms") {
    return ReadNumber(value, name, 0, kMaxTtftSloMs, query.ttft_slo_ms.emplace());
  }
  if (name == "vllm_checkpoint_token") {
    return ReadInteger(value, name, 0, query.vllm_checkpoint_token.emplace());
  }
  return BadField("unknown member: " + name.substr(0, kMaxQueryTextBytes));
}

Status ReadItems(const Json& json, const std::string& name, Query& query) {
  if (!json.is_array() || json.size() > kMaxQueryItems) {
    return BadField(name + ": must be an array of at most " + std::to_string(kMaxQueryItems) +
                    " elements");
  }
  for (const Json& value : json) {
    const std::string element = ElementName(name, query.inputs.mm_items.size());
    MultimodalItem& item = query.inputs.mm_items.emplace_back();
    if (!value.is_object() || value.size() != 3 || !value.contains("identifier") ||
        !value.contains("offset") || !value.contains("length")) {
      return BadField(element + ": must be an object of identifier, offset and length");
    }
    Status status = ReadText(value["identifier"], element + ".identifier", item.identifier);
    if (status.ok()) status = ReadInteger(value["offset"], element + ".offset", 0, item.offset);
    if (status.ok()) status = ReadInteger(value["length"], element + ".length", 1, item.length);
    if (!status.ok()) return status;
  }
  return Status();
}

Status ReadDigests(const Json& json, const std::string& name, Query& query) {
  if (!json.is_array() || json.size() > kMaxQueryDigestSizes) {
    return BadField(name + ": must be an array of at most " + std::to_string(kMaxQueryDigestSizes) +
                    " elements");
  }
  for (const Json& value : json) {
    const std::string element = ElementName(name, query.inputs.embedding_digests.size());
    PromptEmbeddingDigests& of_size = query.inputs.embedding_digests.emplace_back();
    if (!value.is_object() || value.size() != 2 || !value.contains("block_size") ||
        !value.contains("digests") || !value["digests"].is_array()) {
      return BadField(element + ": must be an object of block_size and an array of digests");
    }
    Status status =
        ReadInteger(value["block_size"], element + ".block_size", 1, of_size.hash_block_size);
    if (!status.ok()) return status;
    const auto same = [&of_size](const PromptEmbeddingDigests& other) {
      return &other != &of_size && other.hash_block_size == of_size.hash_block_size;
    };
    if (std::ranges::any_of(query.inputs.embedding_digests, same)) {
      return BadField(element + ".block_size: occurs twice");
    }
    for (const Json& digest : value["digests"]) {
      const auto bytes =
          digest.is_string() ? BytesFromHex(digest.get_ref<const std::string&>()) : std::nullopt;
      auto& read = of_size.digests.emplace_back();
      if (!bytes || bytes->size() != read.size()) {
        return BadField(ElementName(element + ".digests", of_size.digests.size() - 1) +
                        ": not the hex digits of " + std::to_string(read.size()) + " bytes");
      }
      std::copy(bytes->begin(), bytes->end(), read.begin());
    }
  }
  return Status();
}

Status ReadMember(const std::string& name, const Json& value, QueryForm form, Query& query) {
  if (name == "tokens") return ReadQueryTokens(value, name, query);
  if (name == "hashes") return ReadQueryHashes(value, name, query);
  if (name == "lora_name") return ReadText(value, name, query.inputs.lora_name);
  if (name == "lora_path") return ReadText(value, name, query.inputs.lora_path);
  if (name == "mm_items") return ReadItems(value, name, query);
  if (name == "prompt_embeds_digests") return ReadDigests(value, name, query);
  if (name == "cache_salt") return ReadText(value, name, query.inputs.cache_salt);
  if (name == "prompt_tokens") return ReadUpTo(value, name, kMaxPromptTokens, query.prompt_tokens);
  if (name == "hash_block_size") return ReadInteger(value, name, 1, query.hash_block_size);
  if (name == "workers") return ReadTexts(value, name, query.workers);
  if (name == "model") return ReadText(value, name, query.model);
  if (name == "routing_group") return ReadText(value, name, query.routing_group);
  if (form == QueryForm::kRoute) return ReadRouteMember(name, value, query);
  return BadField("unknown member: " + name.substr(0, kMaxQueryTextBytes));
}

// Checks members that exclude or require each other.
Status CheckCombination(const Json& body) {
  const bool by_tokens = body.contains("tokens");
  if (by_tokens == body.contains("hashes")) {
    return BadField("exactly one of tokens and hashes is required");
  }
  if (by_tokens && (body.contains("hash_block_size") || body.contains("prompt_tokens"))) {
    return BadField("hash_block_size and prompt_tokens are allowed only with hashes");
  }
  if (!by_tokens && body.contains("vllm_checkpoint_token")) {
    return BadField("vllm_checkpoint_token is allowed only with tokens");
  }
  for (const char* name :
       {"lora_name", "lora_path", "cache_salt", "mm_items", "prompt_embeds_digests"}) {
    if (by_tokens || !body.contains(name)) continue;
    return BadField(std::string(name) + ": not allowed with hashes, because the hashes contain it");
  }
  return Status();
}

// False: a token id is above INT64_MAX. The caller then parses the whole body, and the parser
// reports the token.
bool FillPrompt(const NumberArray& array, bool by_tokens, Query& query) {
  query.by_tokens = by_tokens;
  if (!by_tokens) {
    query.hashes.reserve(array.numbers.size());
    for (const uint64_t number : array.numbers) query.hashes.emplace_back(number);
    return true;
  }
  const auto most = static_cast<uint64_t>(INT64_MAX);
  for (const uint64_t number : array.numbers) {
    if (number > most) return false;
  }
  query.tokens.assign(array.numbers.begin(), array.numbers.end());
  query.prompt_tokens = std::ssize(query.tokens);
  return true;
}

Status TakeTokensOrHashes(std::string_view body, const PromptMembers& members, Prompt& prompt) {
  std::vector<std::string_view> names;
  for (const std::string_view name : {members.tokens, members.hashes}) {
    if (!name.empty()) names.push_back(name);
  }
  if (auto array = TakeNumberArray(body, names, kMaxQueryTokens)) {
    const bool by_tokens = array->member == members.tokens;
    const size_t most = by_tokens ? kMaxQueryTokens : kMaxQueryHashes;
    if (array->too_long || array->numbers.size() > most) return TooLong(array->member, most);
    if (FillPrompt(*array, by_tokens, prompt.query)) prompt.rest = std::move(array->rest);
    return Status();
  }
  if (members.hashes.empty()) return Status();
  if (auto array = TakeHashArray(body, members.hashes, kMaxQueryHashes)) {
    if (array->too_long) return TooLong(members.hashes, kMaxQueryHashes);
    prompt.query.by_tokens = false;
    prompt.query.hashes = std::move(array->hashes);
    prompt.rest = std::move(array->rest);
  }
  return Status();
}

}  // namespace

Status ReadQueryTokens(const Json& tokens, const std::string& member, Query& query) {
  if (!tokens.is_array() || tokens.empty()) {
    return BadField(member + ": must be a non-empty array");
  }
  query.tokens.reserve(tokens.size());
  for (const Json& token : tokens) {
    const std::optional<int64_t> id = Int64Of(token);
    if (!id || *id < 0)
      return BadField(ElementName(member, query.tokens.size()) + ": not a token id");
    query.tokens.push_back(*id);
  }
  query.prompt_tokens = std::ssize(query.tokens);
  return Status();
}

Status ReadQueryHashes(const Json& hashes, const std::string& member, Query& query) {
  if (!hashes.is_array()) return BadField(member + ": must be an array");
  if (hashes.size() > kMaxQueryHashes) return TooLong(member, kMaxQueryHashes);
  query.by_tokens = false;
  query.hashes.reserve(hashes.size());
  for (const Json& json : hashes) {
    const std::optional<BlockHash> hash = HashOf(json);
    if (!hash) {
      return BadField(ElementName(member, query.hashes.size()) +
                      ": neither an integer nor hex digits");
    }
    query.hashes.push_back(*hash);
  }
  return Status();
}

Status CheckRestBytes(size_t bytes, std::string_view part) {
  if (bytes <= kMaxQueryRestBytes) return Status();
  return BadField("body: longer than " + std::to_string(kMaxQueryRestBytes) + " bytes" +
                  std::string(part));
}

Result<Prompt> TakePrompt(std::string_view body, const PromptMembers& members) {
  Prompt prompt;
  if (Status status = TakeTokensOrHashes(body, members, prompt); !status.ok()) return status;
  if (!prompt.taken()) prompt.query = {};
  Status status = prompt.taken() ? CheckRestBytes(prompt.rest.size())
                                 : CheckRestBytes(body.size(), ", and no prompt can be read");
  if (!status.ok()) return status;
  return prompt;
}

Result<Query> ParseQuery(std::string_view body, QueryForm form, QueryEncoding encoding) {
  const bool packed = encoding == QueryEncoding::kMessagePack;
  Result<Prompt> taken =
      packed ? TakePackedPrompt(body, kQueryDepth) : TakePrompt(body, {"tokens", "hashes"});
  if (!taken.ok()) return taken.status();
  Prompt prompt = std::move(taken).value();
  const Result<Json> json = packed ? ParsePackedObject(prompt.rest)
                                   : ParseObject(prompt.taken() ? prompt.rest : body, kQueryDepth);
  if (!json.ok()) return json.status();
  if (Status status = CheckCombination(*json); !status.ok()) return status;
  Query query = std::move(prompt.query);
  for (const auto& [name, value] : json->items()) {
    if (prompt.taken() && (name == "tokens" || name == "hashes")) continue;
    if (Status status = ReadMember(name, value, form, query); !status.ok()) return status;
  }
  return query;
}

}  // namespace kvcast::router
