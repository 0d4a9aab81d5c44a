// SPDX-License-Identifier: Apache-2.0
#include "router/service/query_engine.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace kvcast::router {
namespace {

std::vector<BlockHash> ChainOf(const HashScheme& scheme, int64_t unit, const Query& query) {
  std::vector<BlockHash> chain;
  // A hasher per query: it is not shared between threads, and its cost is that of a few blocks.
  Result<BlockHasher> hasher = BlockHasher::FromNoneHash(scheme.algorithm, scheme.none_hash);
  if (!hasher.ok()) return chain;
  std::vector<Digest> digests;
  hasher->ExtendChain(query.tokens, unit, query.inputs, digests);
  chain.reserve(digests.size());
  for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, scheme.form));
  return chain;
}

// Why the answer is not proven; empty: it is.
std::string WhyInexact(const QueryAnswer& answer, const TokenFeedStatus& tokens, bool by_tokens) {
  if (answer.state != SourceState::kSynced) {
    return "the stream is " + std::string(SourceStateName(answer.state));
  }
  if (answer.token_mode) return WhyShort(tokens);
  if (!by_tokens || answer.scheme.state == SchemeState::kMatched) return "";
  return "hash scheme: " + answer.scheme.reason;
}

// The same of the match itself.
std::string WhyNoProof(const QueryAnswer& answer, bool assumed_kinds, const Query& query) {
  if (answer.hash_block_size == 0) return "the query's hash unit is not the worker's";
  if (query.by_tokens && !answer.token_mode &&
      answer.hash_block_size != answer.scheme.scheme->hash_block_size) {
    return "the worker's block sizes do not fit its hash unit";
  }
  if (assumed_kinds) return "token mode: the kinds of the groups are neither sent nor registered";
  return answer.match.certain ? "" : "the worker repeats announcements";
}

// Who answers in the index.
WorkerId WorkerOf(const Source& source, const QueryAnswer& answer) {
  return answer.token_mode ? source.token_worker() : source.id();
}

}  // namespace

QueryEngine::QueryEngine(const PrefixIndex& index, StatusOf status_of, std::function<double()> now)
    : index_(index), status_of_(std::move(status_of)), now_(std::move(now)) {}

Result<std::vector<const Source*>> QueryEngine::Select(const std::vector<std::string>& names,
                                                       const SourceList& sources) {
  std::vector<const Source*> selected;
  for (const auto& source : sources) {
    const bool named = std::find(names.begin(), names.end(), source->name()) != names.end();
    if (names.empty() || named) selected.push_back(source.get());
  }
  for (const std::string& name : names) {
    const bool known = std::any_of(selected.begin(), selected.end(), [&name](const Source* source) {
      return source->name() == name;
    });
    if (!known) return Status(StatusCode::kInvalidArgument, "workers: unknown worker " + name);
  }
  return selected;
}

QueryEngine::Cohorts QueryEngine::Group(const std::vector<const Source*>& selected,
                                        const std::vector<QueryAnswer>& answers,
                                        const Query& query) const {
  Cohorts cohorts;
  for (size_t i = 0; i < selected.size(); ++i) {
    const Source& source = *selected[i];
    const WorkerId worker = WorkerOf(source, answers[i]);
    ChainKey key{.scheme = {}, .unit = index_.hash_block_size(worker)};
    const bool other_unit = query.hash_block_size != 0 && query.hash_block_size != key.unit;
    if (key.unit == 0 || other_unit) continue;
    if (answers[i].token_mode) {
      key.tokens_per_position = source.token_status().tokens_per_position;
    } else if (query.by_tokens) {
      key.scheme = source.scheme();
    }
    cohorts[key].push_back(worker);
  }
  return cohorts;
}

std::vector<BlockHash> QueryEngine::MakeChain(const ChainKey& key, const Query& query) {
  if (key.tokens_per_position > 0) {
    return ContentChain(query.tokens, key.unit, query.inputs, key.tokens_per_position);
  }
  return query.by_tokens ? ChainOf(key.scheme, key.unit, query) : query.hashes;
}

QueryAnswer QueryEngine::Describe(const Source& source, const Query& query) const {
  QueryAnswer answer;
  answer.name = source.name();
  answer.model = source.model();
  // A worker without a match (unit unknown, or another one) can promise nothing.
  answer.match.worker = source.id();
  answer.match.recompute_tokens = query.prompt_tokens;
  const SourceStatus status = status_of_(source.id());
  answer.state = source.State(status.state);
  answer.weight = status.weight;
  answer.next_seq = status.next_seq;
  if (const auto ts = source.last_batch_ts(); ts && now_) {
    answer.event_age_seconds = std::max(0.0, now_() - *ts);
  }
  answer.scheme = source.verdict();
  const TokenFeedStatus tokens = source.token_status();
  answer.token_mode = query.by_tokens && tokens.serving;
  answer.reason = WhyInexact(answer, tokens, query.by_tokens);
  return answer;
}

Result<std::vector<QueryAnswer>> QueryEngine::Answer(const Query& query,
                                                     const SourceList& sources) const {
  Result<std::vector<const Source*>> selected = Select(query.workers, sources);
  if (!selected.ok()) return selected.status();
  // Before the index is asked: what counts as applied must be in the answer.
  std::vector<QueryAnswer> answers;
  for (const Source* source : *selected) answers.push_back(Describe(*source, query));
  struct Matched {
    WorkerMatch match;
    int64_t unit = 0;
    SharedChain chain;
  };
  std::unordered_map<WorkerId, Matched> matched;
  for (const auto& [key, workers] : Group(*selected, answers, query)) {
    const auto chain = std::make_shared<const std::vector<BlockHash>>(MakeChain(key, query));
    const int64_t prompt_tokens =
        query.prompt_tokens == 0 ? std::ssize(*chain) * key.unit + 1 : query.prompt_tokens;
    for (WorkerMatch& match : index_.Match(*chain, key.unit, prompt_tokens, workers)) {
      matched[match.worker] = {std::move(match), key.unit, chain};
    }
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    QueryAnswer& answer = answers[i];
    const Source& source = *(*selected)[i];
    const WorkerId worker = WorkerOf(source, answer);
    if (const auto it = matched.find(worker); it != matched.end()) {
      answer.match = it->second.match;
      answer.hash_block_size = it->second.unit;
      answer.chain = it->second.chain;
      answer.match.worker = source.id();
    }
    // A proof must still hold: the source may have been reset in between.
    if (answer.reason.empty()) answer.reason = Describe(source, query).reason;
    const bool assumed = answer.token_mode && index_.counters(worker).assumed_kinds > 0;
    if (answer.reason.empty()) answer.reason = WhyNoProof(answer, assumed, query);
    answer.exact = answer.reason.empty();
  }
  return answers;
}

}  // namespace kvcast::router
