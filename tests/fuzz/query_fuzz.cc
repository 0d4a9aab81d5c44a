// Fuzz target: bodies of POST /v1/query, /v1/route, /query and /query_by_hash, as JSON and as
// MessagePack. An accepted query is within its bounds. The JSON of a body and the MessagePack of
// the same values are the same query. The long array of a body has a fast reader. This reader gives
// the same query as a JSON parser of the whole body.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "router/service/api/indexer_requests.h"
#include "router/service/json/bounded_json.h"
#include "router/service/json/json_fields.h"
#include "router/service/route/packed_query.h"
#include "router/service/route/query.h"
#include "src/base/check.h"
#include "src/wire/utf8.h"
#include "tests/fuzz/fuzz_input.h"

namespace kvcast::router {
namespace {

constexpr size_t kDepth = 4;

bool SameItem(const MultimodalItem& a, const MultimodalItem& b) {
  return a.identifier == b.identifier && a.offset == b.offset && a.length == b.length;
}
bool SameDigests(const PromptEmbeddingDigests& a, const PromptEmbeddingDigests& b) {
  return a.hash_block_size == b.hash_block_size && a.digests == b.digests;
}

bool SameInputs(const HashInputs& a, const HashInputs& b) {
  return a.lora_name == b.lora_name && a.lora_path == b.lora_path && a.cache_salt == b.cache_salt &&
         std::ranges::equal(a.mm_items, b.mm_items, SameItem) &&
         std::ranges::equal(a.embedding_digests, b.embedding_digests, SameDigests);
}

bool Same(const Query& a, const Query& b) {
  return a.by_tokens == b.by_tokens && a.tokens == b.tokens && a.hashes == b.hashes &&
         SameInputs(a.inputs, b.inputs) && a.hash_block_size == b.hash_block_size &&
         a.prompt_tokens == b.prompt_tokens && a.workers == b.workers && a.model == b.model &&
         a.routing_group == b.routing_group && a.request_id == b.request_id &&
         a.temperature == b.temperature && a.ttft_slo_ms == b.ttft_slo_ms && a.book == b.book &&
         a.vllm_checkpoint_token == b.vllm_checkpoint_token;
}

bool IsShort(const std::string& text) { return text.size() <= kMaxQueryTextBytes; }

void CheckInputs(const Query& query) {
  const HashInputs& inputs = query.inputs;
  KV_CHECK(query.by_tokens || inputs.empty());
  KV_CHECK(IsShort(inputs.lora_name) && IsShort(inputs.lora_path) && IsShort(inputs.cache_salt));
  KV_CHECK(inputs.mm_items.size() <= kMaxQueryItems);
  for (const MultimodalItem& item : inputs.mm_items) {
    KV_CHECK(IsShort(item.identifier) && item.offset >= 0 && item.length >= 1);
  }
  KV_CHECK(inputs.embedding_digests.size() <= kMaxQueryDigestSizes);
  for (const PromptEmbeddingDigests& digests : inputs.embedding_digests) {
    KV_CHECK(digests.hash_block_size >= 1);
  }
}

void CheckBounds(const Query& query) {
  KV_CHECK(query.by_tokens ? query.hashes.empty() : query.tokens.empty());
  KV_CHECK(query.tokens.empty() != query.by_tokens);
  KV_CHECK(std::ranges::all_of(query.tokens, [](TokenId id) { return id >= 0; }));
  KV_CHECK(query.tokens.size() <= kMaxQueryTokens && query.hashes.size() <= kMaxQueryHashes);
  KV_CHECK(std::ranges::all_of(query.hashes, [](const BlockHash& hash) {
    return !hash.is_bytes() || (!hash.bytes().empty() && hash.bytes().size() <= kMaxHexHashBytes);
  }));
  KV_CHECK(query.prompt_tokens >= 0 && query.prompt_tokens <= kMaxPromptTokens);
  KV_CHECK(!query.by_tokens || query.prompt_tokens == std::ssize(query.tokens));
  KV_CHECK(query.hash_block_size >= 0);
  KV_CHECK(std::ranges::all_of(query.workers, IsShort));
  KV_CHECK(IsShort(query.model) && IsShort(query.routing_group) && IsShort(query.request_id));
  const double temperature = query.temperature.value_or(0);
  KV_CHECK(temperature >= 0 && temperature <= kMaxTemperature);
  const double slo = query.ttft_slo_ms.value_or(0);
  KV_CHECK(slo >= 0 && slo <= kMaxTtftSloMs);
  KV_CHECK(query.vllm_checkpoint_token.value_or(0) >= 0);
  CheckInputs(query);
}

void CheckSame(const Result<Query>& a, const Result<Query>& b) {
  fuzz::CheckReason(a.status());
  KV_CHECK(a.ok() == b.ok());
  if (!a.ok()) return;
  CheckBounds(*a);
  KV_CHECK(Same(*a, *b));
}

// Returns the object as text, with the member twice. The fast reader of the long array leaves such
// a body to the JSON parser. The parser takes the last value.
std::string WithMemberTwice(std::string_view member, const Json& object) {
  const std::string first = "{\"" + std::string(member) + "\":0";
  return first + (object.empty() ? "" : ",") + object.dump().substr(1);
}

void CheckJson(std::string_view body) {
  const Result<Json> document = ReadJson(body, {.max_depth = kDepth});
  if (!document.ok() || !document->is_object()) {
    KV_CHECK(!ParseQuery(body).ok() && !ParseIndexerQuery(body, true).ok());
    return;
  }
  std::string packed;
  Json::to_msgpack(*document, packed);
  for (const QueryForm form : {QueryForm::kQuery, QueryForm::kRoute}) {
    CheckSame(ParseQuery(body, form), ParseQuery(packed, form, QueryEncoding::kMessagePack));
  }
  for (const bool by_hash : {false, true}) {
    const char* const member = by_hash ? "block_hashes" : "token_ids";
    if (!document->contains(member)) continue;
    CheckSame(ParseIndexerQuery(body, by_hash),
              ParseIndexerQuery(WithMemberTwice(member, *document), by_hash));
  }
  for (const char* const member : {"tokens", "hashes"}) {
    if (!document->contains(member)) continue;
    CheckSame(ParseQuery(body), ParseQuery(WithMemberTwice(member, *document)));
  }
}

// True: the values have the same meaning in JSON.
bool FitsJson(const Json& value) {
  if (value.is_binary()) return false;
  if (value.is_string()) return wire::IsUtf8(value.get_ref<const std::string&>());
  if (!value.is_structured()) return true;
  for (const auto& [name, element] : value.items()) {
    if (!wire::IsUtf8(name) || !FitsJson(element)) return false;
  }
  return true;
}

void CheckPacked(std::string_view body) {
  for (const QueryForm form : {QueryForm::kQuery, QueryForm::kRoute}) {
    const Result<Query> query = ParseQuery(body, form, QueryEncoding::kMessagePack);
    fuzz::CheckReason(query.status());
    if (!query.ok()) continue;
    CheckBounds(*query);
    const Json document = Json::from_msgpack(body, true, false);
    KV_CHECK(document.is_object());
    std::string again;
    Json::to_msgpack(document, again);
    CheckSame(query, ParseQuery(again, form, QueryEncoding::kMessagePack));
    if (FitsJson(document)) CheckSame(query, ParseQuery(document.dump(), form));
  }
}

}  // namespace
}  // namespace kvcast::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body = kvcast::fuzz::TextOf({data, size});
  if (size > 0 && data[0] >= 0x80) {
    kvcast::router::CheckPacked(body);
  } else {
    kvcast::router::CheckJson(body);
  }
  return 0;
}
