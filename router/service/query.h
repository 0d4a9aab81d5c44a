// The JSON of POST /v1/query and /v1/route: what is asked, and the answer per worker.
//
// Request: an object with exactly one of
//   tokens   array of token ids, the whole prompt
//   hashes   array of block hashes: integers, or strings of hex digits for byte hashes
// and optionally
//   lora_name, lora_path, cache_salt strings; with tokens only, as the next two
//   mm_items                         array of {identifier, offset, length}, by offset: multimodal
//                                    items of the prompt
//   prompt_embeds_digests            array of {block_size, digests}: SHA-256 of the embeddings of
//                                    each whole block, as strings of hex digits
//   hash_block_size, prompt_tokens   integers; with hashes only. By default every worker's own unit
//                                    and a prompt that goes on after the last hash
//   workers                          array of names; absent: all
//   model, routing_group             of the workers; absent: any
// and in /v1/route
//   request_id     names the request in /v1/feedback; absent: one is made up
//   temperature    see routing_desk.h; absent: the service's
//   book           false: only asks; the request adds no load and no expected blocks. Default: true
// Unknown members are refused: a misspelt cache_salt must not read another tenant's cache.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/prefix_index.h"
#include "kvcast/prompt_contents.h"
#include "kvcast/scheme_detector.h"
#include "kvcast/selector.h"
#include "kvcast/status.h"
#include "kvcast/subscriber.h"
#include "router/service/json_writer.h"

namespace kvcast::router {

struct Query {
  bool by_tokens = true;
  std::vector<TokenId> tokens;
  HashInputs inputs;
  std::vector<BlockHash> hashes;
  int64_t hash_block_size = 0;       // 0: not given
  int64_t prompt_tokens = 0;         // 0: not given; with tokens their number
  std::vector<std::string> workers;  // empty: all
  std::string model;                 // empty: any
  std::string routing_group;         // empty: any
  // Of a route.
  std::string request_id;
  std::optional<double> temperature;
  bool book = true;
};

// Bounds of a query.
inline constexpr size_t kMaxQueryBytes = 16 << 20;
inline constexpr size_t kMaxQueryTokens = 1 << 21;
inline constexpr size_t kMaxQueryHashes = 1 << 17;
// Of a body without its prompt, for which a JSON document is made: 4,096 items named by SHA-256.
inline constexpr size_t kMaxQueryRestBytes = 512 << 10;
inline constexpr size_t kMaxQueryTextBytes = 1024;  // names and salts
inline constexpr size_t kMaxQueryHashBytes = 256;
inline constexpr size_t kMaxQueryItems = 4096;  // multimodal
inline constexpr size_t kMaxQueryDigestSizes = 16;
inline constexpr double kMaxTemperature = 100;

enum class QueryForm : uint8_t { kQuery, kRoute };

// Not ok: one line that names the member at fault.
Result<Query> ParseQuery(std::string_view body, QueryForm form = QueryForm::kQuery);
// The two ways to name a prompt, for other forms of query too.
Status ReadQueryTokens(const nlohmann::json& tokens, const std::string& member, Query& query);
Status ReadQueryHashes(const nlohmann::json& hashes, const std::string& member, Query& query);

// Reads the prompt out of a body and leaves the rest to a JSON parser; see number_array.h. Not
// taken: the body must be read as a whole. kInvalidArgument: the prompt, or the rest, is too long.
struct PromptMembers {
  std::string_view tokens;  // empty: not known in this form of query
  std::string_view hashes;
};
struct Prompt {
  Query query;       // with the prompt alone
  std::string rest;  // with an empty array in the prompt's place
  bool taken() const { return !rest.empty(); }
};
Result<Prompt> TakePrompt(std::string_view body, const PromptMembers& members);

std::string_view HitName(HitKind hit);  // "full", "partial", "miss"

using SharedChain = std::shared_ptr<const std::vector<BlockHash>>;

// The names by which the blocks of an answer were found.
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
  double weight = 0;  // how far that state is to be trusted; see SourceStatus
  uint64_t next_seq = 0;
  // Since the worker's clock stamped its last applied batch; nullopt: none yet. At least 0, and as
  // right as the two clocks agree.
  std::optional<double> event_age_seconds;
  SchemeVerdict scheme;
  NamedBy named_by = NamedBy::kContent;
  // Proven to be what the engine's own lookup would say at next_seq or later: the stream is synced,
  // the match is certain, and nothing that is not known of the worker could change it.
  bool exact = false;
  std::string reason;  // why not
  // The same of match.with_cpu_tokens, copies under way aside: the tokens that the engine serves
  // once it has waited for them, or for as long as it may.
  bool exact_with_cpu = false;
  std::string reason_with_cpu;     // why not, although exact; else empty
  bool reuse_contradicts = false;  // exact but for what engines said of earlier answers
  // What the index was asked for the worker; nullptr: nothing could be asked.
  SharedChain chain;
  LoadCosts load_costs;  // of a route
};

// {"workers": [{"name", "model", "reusable_tokens", "reusable_with_cpu_tokens",
// "reusable_with_storage_tokens", "recompute_tokens", "hit": "full"|"partial"|"miss",
// "limiting_group": n|null, "per_group_tokens", "certain", "hash_block_size", "state", "weight",
// "next_seq", "event_age_seconds": x|null, "named_by": "content"|"scheme"|"hashes", "exact",
// "exact_with_cpu", "reason", "reason_with_cpu", "scheme":
// {"state", "algorithm", "seed", "hash_block_size", "reason"}}, ...]}; see WorkerMatch for their
// meaning. The scheme's algorithm, seed and unit as far as they are known.
// `more` writes further members.
void WriteAnswer(const QueryAnswer& answer, JsonWriter& json,
                 const std::function<void(JsonWriter&)>& more = {});
nlohmann::json AnswerToJson(const QueryAnswer& answer);
std::string RenderAnswers(const std::vector<QueryAnswer>& answers);

}  // namespace kvcast::router
