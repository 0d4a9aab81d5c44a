// The JSON of POST /v1/query and /v1/route: the request, and the answer per worker. A request may
// also be MessagePack (packed_query.h).
//
// Request: an object with exactly one of
//   tokens   array of token ids, the whole prompt
//   hashes   array of block hashes: integers, or strings of hex digits for byte hashes
// and optionally
//   lora_name, lora_path, cache_salt strings; only with tokens
//   mm_items                         array of {identifier, offset, length}, ordered by offset:
//                                    multimodal items of the prompt; only with tokens
//   prompt_embeds_digests            array of {block_size, digests}: SHA-256 of the embeddings of
//                                    each whole block, as strings of hex digits; only with tokens
//   hash_block_size                  integer; only with hashes. Default: each worker's own size
//   prompt_tokens                    integer; only with hashes. Default: the prompt continues after
//                                    the last hash
//   workers                          array of names; absent: all
//   model, routing_group             of the workers; absent: any
// and in /v1/route
//   request_id     names the request in /v1/feedback; absent: the service chooses an id
//   temperature    see request_router.h; absent: the service's temperature
//   ttft_slo_ms    limit of the time to the first token, see request_router.h; absent: no limit.
//                  With a limit, the temperature is ignored
//   book           false: the request adds no load and no expected blocks, and its feedback is
//                  refused. Default: true
//   vllm_checkpoint_token
//                  token id; only with tokens: the reply has vllm_prompt, see vllm_prompt.h
// A request with an unknown member is refused. Otherwise a query with a misspelt cache_salt would
// match another tenant's blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/router/prompt_contents.h"
#include "kvcast/router/scheme_detector.h"
#include "kvcast/router/selector.h"
#include "kvcast/router/speculative_prefixes.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/json/json_writer.h"

namespace kvcast::router {

struct Query {
  bool by_tokens = true;
  std::vector<TokenId> tokens;
  HashInputs inputs;
  std::vector<BlockHash> hashes;
  // The prompt in memory of the caller, instead of `tokens` or `hashes`. Only for queries: a
  // routing decision reads `tokens` or `hashes`.
  std::span<const TokenId> borrowed_tokens;
  std::span<const uint64_t> borrowed_hashes;
  std::span<const TokenId> prompt() const {
    return tokens.empty() ? borrowed_tokens : std::span<const TokenId>(tokens);
  }
  int64_t hash_block_size = 0;  // 0: not given
  // 0: not given; by tokens: the number of tokens. By hashes: the answer is exact only if the query
  // has a hash for each whole block of this prompt.
  int64_t prompt_tokens = 0;
  std::vector<std::string> workers;  // empty: all
  std::string model;                 // empty: any
  std::string routing_group;         // empty: any
  // Members of a route.
  std::string request_id;
  std::optional<double> temperature;
  std::optional<double> ttft_slo_ms;
  bool book = true;
  std::string traceparent;  // of the HTTP request; empty: none
  std::optional<TokenId> vllm_checkpoint_token;
};

// Bounds of a query.
inline constexpr size_t kMaxQueryBytes = 16 << 20;
inline constexpr size_t kMaxQueryTokens = 1 << 21;
inline constexpr size_t kMaxQueryHashes = 1 << 17;
// Maximum of prompt_tokens. Sums over all booked requests stay far below 2^63.
inline constexpr int64_t kMaxPromptTokens = int64_t{1} << 31;
// Bytes of a body without its prompt. This part becomes a JSON document. The limit has room for
// 4,096 items with SHA-256 identifiers.
inline constexpr size_t kMaxQueryRestBytes = 512 << 10;
inline constexpr size_t kMaxQueryTextBytes = 1024;  // names and salts
inline constexpr size_t kMaxQueryItems = 4096;      // multimodal items
inline constexpr size_t kMaxQueryDigestSizes = 16;
inline constexpr double kMaxTemperature = 100;
inline constexpr double kMaxTtftSloMs = 1e9;

enum class QueryForm : uint8_t { kQuery, kRoute };

// The encoding of a request's body. MessagePack: a map with the members of the JSON object.
enum class QueryEncoding : uint8_t { kJson, kMessagePack };

// Not ok: one line that names the wrong member.
Result<Query> ParseQuery(std::string_view body, QueryForm form = QueryForm::kQuery,
                         QueryEncoding encoding = QueryEncoding::kJson);
// The two forms of a prompt, for the parsers of other query formats.
Status ReadQueryTokens(const nlohmann::json& tokens, const std::string& member, Query& query);
Status ReadQueryHashes(const nlohmann::json& hashes, const std::string& member, Query& query);

// TakePrompt reads the array of the prompt out of the body without a JSON document
// (number_array.h). A JSON parser then reads Prompt::rest. If the prompt is not taken, the caller
// must parse the whole body.
struct PromptMembers {
  std::string_view tokens;  // empty: this query form has no such member
  std::string_view hashes;
};
struct Prompt {
  Query query;       // only the prompt is set
  std::string rest;  // the body with an empty array in place of the prompt
  bool taken() const { return !rest.empty(); }
};
// Not ok: a part of the body has too many bytes. `part` ends the message.
Status CheckRestBytes(size_t bytes, std::string_view part = " besides the prompt");
// Not ok: the prompt is too long, or CheckRestBytes refuses Prompt::rest. If the prompt is not
// taken, CheckRestBytes checks the whole body.
Result<Prompt> TakePrompt(std::string_view body, const PromptMembers& members);

std::string_view HitName(HitKind hit);  // "full", "partial", "miss"

using SharedChain = std::shared_ptr<const std::vector<BlockHash>>;
using SharedPrefixes = std::shared_ptr<const std::vector<PrefixName>>;

// The kind of block name that the match used.
enum class NamedBy : uint8_t {
  kContent,  // content keys
  kScheme,   // the engine's hash chain, computed from the tokens
  kHashes,   // the hashes of the query
};
std::string_view NamedByName(NamedBy by);  // "content", "scheme", "hashes"

struct QueryAnswer {
  std::string name;
  std::string model;
  WorkerMatch match;
  int64_t hash_block_size = 0;  // 0: not known yet
  SourceState state = SourceState::kConnecting;
  double weight = 0;  // 0 to 1, by the source's state; see SourceStatus
  uint64_t next_seq = 0;
  uint64_t replacements = 0;  // of the status that `state` is from; see SourceStatus
  // Seconds since WorkerIngest::last_batch_ts, at least 0; nullopt: there is no time stamp. The
  // error of this value is the difference between the worker's clock and the router's clock.
  std::optional<double> event_age_seconds;
  std::shared_ptr<const SchemeVerdict> scheme;  // not nullptr in answers of QueryEngine
  NamedBy named_by = NamedBy::kContent;
  // True: match.gpu_tokens provably equals the engine's own lookup at next_seq or later. The stream
  // is synced, the match is certain, and no unknown property of the worker could change the result.
  bool exact = false;
  std::string reason;  // the reason if `exact` is false
  // True: match.with_cpu_tokens is proven in the same way. While copies are in progress,
  // the proof is about the tokens that the engine serves after it has waited for the copies.
  bool exact_with_cpu = false;
  // The reason if `exact` is true and `exact_with_cpu` is false; else empty.
  std::string reason_with_cpu;
  // True: the answer would be exact, but reports of the engine contradict earlier exact answers.
  bool reuse_contradicts = false;
  // The names of the prompt's prefixes that end with whole blocks, of the kind that the match used.
  // nullptr: the index could not be queried.
  SharedPrefixes prefixes;
  LoadCosts load_costs;      // set only for POST /v1/route
  int64_t cache_tokens = 0;  // set only for POST /v1/route; 0: not known
};

// {"workers": [{"name", "model", "reusable_tokens", "reusable_with_cpu_tokens",
// "reusable_with_storage_tokens", "recompute_tokens", "hit": "full"|"partial"|"miss",
// "limiting_group": n|null, "per_group_tokens", "certain", "hash_block_size", "state", "weight",
// "next_seq", "event_age_seconds": x|null, "named_by": "content"|"scheme"|"hashes", "exact",
// "exact_with_cpu", "reason", "reason_with_cpu", "replay_tokens", "scheme":
// {"state", "algorithm", "seed", "hash_block_size", "reason"}}, ...]}; WorkerMatch and QueryAnswer
// describe the members. The scheme's algorithm, seed and hash block size are present if they are
// known. `more` writes further members.
void WriteAnswer(const QueryAnswer& answer, JsonWriter& json,
                 const std::function<void(JsonWriter&)>& more = {});
nlohmann::json AnswerToJson(const QueryAnswer& answer);
std::string RenderAnswers(const std::vector<QueryAnswer>& answers);

}  // namespace kvcast::router
