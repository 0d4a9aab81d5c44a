// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/query_engine.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "router/service/route/inexact_reasons.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {
namespace {

// Maximum number of tokens that one query hashes, over all hash schemes: about 20 ms of SHA-256.
// The first chain is always computed.
constexpr size_t kMaxHashedTokens = size_t{1} << 21;

// The form of extra keys that the stores have proven for at least one kind of key. An engine uses
// one form for all kinds.
std::optional<ExtraKeyScheme> KeyFormOf(const SchemeVerdict& verdict) {
  for (const KeyKindState& kind : verdict.kinds) {
    if (kind.proof == KeyProof::kTagged) return ExtraKeyScheme::kTagged;
    if (kind.proof == KeyProof::kBare) return ExtraKeyScheme::kBare;
  }
  return std::nullopt;
}

// The inputs with the configured path of their adapter. nullopt: no path is needed, or the inputs
// have a path.
std::optional<HashInputs> WithLoraPath(const WorkerIngest& source, const HashInputs& inputs) {
  if (!inputs.lora_path.empty() || inputs.lora_name.empty()) return std::nullopt;
  HashInputs with_path = inputs;
  with_path.lora_path = source.lora_path(inputs.lora_name);
  return with_path;
}

}  // namespace

bool QueryEngine::ChainKey::operator<(const ChainKey& other) const {
  const auto tie = [](const auto& key) {
    return std::tie(key.scheme, key.form.extra_keys, key.form.lookahead, key.lora_path);
  };
  return tie(*this) < tie(other);
}

bool QueryEngine::Cohort::operator<(const Cohort& other) const {
  const auto tie = [](const auto& cohort) {
    return std::tie(cohort.hash_block_size, cohort.lookahead, cohort.by_content, cohort.chain);
  };
  return tie(*this) < tie(other);
}

class QueryEngine::PromptNames {
 public:
  PromptNames(const ContentKeys& keys, const Query& query) : keys_(keys), query_(query) {}

  // The content keys of the prompt's prefixes.
  const SharedPrefixes& Contents(int64_t hash_block_size, int64_t lookahead) {
    SharedPrefixes& contents = contents_[{hash_block_size, lookahead}];
    if (!contents) {
      contents = std::make_shared<const std::vector<ContentKey>>(
          PromptContents(keys_, query_.prompt(), hash_block_size, lookahead, query_.inputs));
    }
    return contents;
  }
  // nullptr: the query has reached its limit of hashed tokens.
  const SharedChain& Chain(const ChainKey& key, int64_t hash_block_size) {
    const auto [it, added] = chains_.try_emplace({key, hash_block_size});
    if (!added) return it->second;
    const size_t tokens = query_.prompt().size();
    if (hashed_tokens_ > 0 && hashed_tokens_ + tokens > kMaxHashedTokens) return it->second;
    hashed_tokens_ += tokens;
    it->second = std::make_shared<const std::vector<BlockHash>>(ChainOf(key, hash_block_size));
    return it->second;
  }
  static SharedPrefixes PrefixesOf(std::span<const BlockHash> hashes) {
    std::vector<PrefixName> prefixes;
    prefixes.reserve(hashes.size());
    for (const BlockHash& hash : hashes) prefixes.push_back(PrefixNameOf(hash));
    return std::make_shared<const std::vector<PrefixName>>(std::move(prefixes));
  }

 private:
  std::vector<BlockHash> ChainOf(const ChainKey& key, int64_t hash_block_size) const {
    std::vector<BlockHash> chain;
    // Each chain has its own hasher, because threads must not share a hasher. The creation costs as
    // much as the hashes of a few blocks.
    Result<BlockHasher> hasher =
        BlockHasher::FromNoneHash(key.scheme.algorithm, key.scheme.none_hash);
    if (!hasher.ok()) return chain;
    HashInputs inputs = query_.inputs;
    inputs.lora_path = key.lora_path;
    std::vector<Digest> digests;
    hasher->ExtendChain(query_.prompt(), hash_block_size, inputs, digests, key.form);
    chain.reserve(digests.size());
    for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, key.scheme.form));
    return chain;
  }

  const ContentKeys& keys_;
  const Query& query_;
  std::map<std::pair<int64_t, int64_t>, SharedPrefixes> contents_;
  std::map<std::pair<ChainKey, int64_t>, SharedChain> chains_;
  size_t hashed_tokens_ = 0;
};

QueryEngine::QueryEngine(const PrefixIndex& index, StatusOf status_of, std::function<double()> now,
                         MatchPolicy policy)
    : index_(index), status_of_(std::move(status_of)), now_(std::move(now)), policy_(policy) {}

Result<std::vector<WorkerIngest*>> QueryEngine::Select(const std::vector<std::string>& names,
                                                       const SourceList& sources) {
  std::vector<WorkerIngest*> selected;
  std::unordered_set<std::string_view, SeededTextHash> missing(names.begin(), names.end());
  for (const auto& source : sources) {
    const bool named = missing.erase(source->name()) > 0;  // names of sources are unique
    if (names.empty() || named) selected.push_back(source.get());
  }
  for (const std::string& name : names) {
    const bool known = !missing.contains(name);
    if (!known) return Status(StatusCode::kInvalidArgument, "workers: unknown worker " + name);
  }
  return selected;
}

std::string QueryEngine::WhyNoState(const WorkerIngest& source, const SourceStatus& status,
                                    const Query& query) const {
  if (const SourceState state = source.State(status.state); state != SourceState::kSynced) {
    std::string reason = "the stream is " + std::string(SourceStateName(state));
    if (state == SourceState::kCleared && source.gpu_blocks() > 0) {
      const IndexCounters counters = source.index_counters();
      reason += ": " + std::to_string(counters.whole_gpu_blocks) + " of " +
                std::to_string(source.gpu_blocks()) + " GPU blocks are known";
    }
    if (const auto hint = SourceHint(status); !hint.empty()) reason.append(": ").append(hint);
    return reason;
  }
  if (query.by_tokens && source.is_contradicted()) {
    return "contradiction: the hashes of the stream do not match its tokens";
  }
  if (policy_ != MatchPolicy::kExact) {
    return "policy: the service predicts by another rule than the engine's";
  }
  return std::string(source.rule_doubt());
}

QueryAnswer QueryEngine::Describe(const WorkerIngest& source, const Query& query) const {
  QueryAnswer answer;
  answer.name = source.name();
  answer.model = source.model();
  // Without a match (hash block size unknown or different) the answer has 0 tokens.
  answer.match.worker = source.id();
  answer.match.recompute_tokens = query.prompt_tokens;
  const SourceStatus status = status_of_(source.id());
  answer.state = source.State(status.state);
  answer.weight = status.weight;
  answer.next_seq = status.next_seq;
  answer.replacements = status.replacements;
  if (const auto ts = source.last_batch_ts(); ts && now_) {
    answer.event_age_seconds = std::max(0.0, now_() - *ts);
  }
  answer.scheme = source.verdict();
  answer.reason = WhyNoState(source, status, query);
  return answer;
}

void QueryEngine::PlanByPath(const WorkerIngest& source, const SchemeVerdict& verdict,
                             const Query& query, const HashInputs& inputs, Plan& plan) {
  HashInputs others = inputs;
  others.lora_name.clear();
  others.lora_path.clear();
  const auto proven = ProvenForm(verdict, others);
  const ChainForm with_path = {ExtraKeyScheme::kTagged, plan.cohort.lookahead};
  plan.named_by = NamedBy::kScheme;
  plan.cohort.chain = ChainKey{source.scheme(), with_path, inputs.lora_path};
  // A path in the request belongs to the request's adapter. A path from the source's lora_paths may
  // belong to another adapter of the same name.
  plan.proven_by_hit = query.inputs.lora_path.empty() || !KeyFormOf(verdict);
  if (!proven) plan.reason = WhyNoScheme(verdict, others);
}

std::string QueryEngine::WhyContentIsHidden(const WorkerIngest& source, const HashInputs& inputs,
                                            bool path_decides) {
  if (path_decides) {
    return "the content depends on the LoRA path, which is not known: set lora_paths, or lora_path";
  }
  if (source.hides_inputs() && !inputs.empty()) {
    return "inputs: the events of the source do not show images and salts";
  }
  return "";
}

QueryEngine::Plan QueryEngine::PlanFor(const WorkerIngest& source, const QueryAnswer& answer,
                                       const Query& query) const {
  const PromptShape shape = index_.ShapeOf(source.id());
  Plan plan{.cohort = {.hash_block_size = shape.hash_block_size,
                       .lookahead = shape.lookahead,
                       .by_content = false,
                       .chain = std::nullopt},
            .named_by = NamedBy::kHashes,
            .reason = ""};
  if (!query.by_tokens) return plan;
  const SchemeVerdict& verdict = *answer.scheme;
  const std::optional<HashInputs> with_path = WithLoraPath(source, query.inputs);
  const HashInputs& inputs = with_path ? *with_path : query.inputs;
  // The path of a LoRA adapter is part of a block's content, and no event contains the path.
  const bool path_decides =
      !inputs.lora_name.empty() && KeyFormOf(verdict) != ExtraKeyScheme::kBare;
  const bool computable =
      verdict.state == SchemeState::kMatched || verdict.state == SchemeState::kUnknown;
  if (path_decides && computable && !inputs.lora_path.empty()) {
    PlanByPath(source, verdict, query, inputs, plan);
    return plan;
  }
  const auto form = ProvenForm(verdict, inputs);
  const bool matched = verdict.state == SchemeState::kMatched && form && verdict.scheme &&
                       verdict.scheme->hash_block_size == shape.hash_block_size;
  if (!shape.has_named && (shape.has_unnamed || shape.hash_block_size > 0)) {
    // The stream does not show which content a hash names.
    plan.named_by = NamedBy::kScheme;
    ChainForm likely = LikelyForm(verdict);
    likely.lookahead = shape.lookahead;
    plan.cohort.chain = ChainKey{source.scheme(), form ? *form : likely, inputs.lora_path};
    if (!matched) plan.reason = WhyNoScheme(verdict, inputs);
    if (!matched && plan.reason.empty()) {
      plan.reason = "hash scheme: the stores' hash block size is not the worker's";
    }
    plan.names_blocks = plan.cohort.by_content = matched && !path_decides;
    return plan;
  }
  plan.named_by = NamedBy::kContent;
  plan.cohort.by_content = true;
  plan.reason = WhyContentIsHidden(source, inputs, path_decides);
  if (shape.has_unnamed && matched) {
    plan.cohort.chain = ChainKey{source.scheme(), *form, inputs.lora_path};
    plan.names_blocks = !path_decides;
  }
  return plan;
}

QueryEngine::ContentHits QueryEngine::HitsByContent(const WorkerIngest& source,
                                                    const Cohort& cohort, const Query& query,
                                                    PromptNames& names) const {
  const WorkerId id = source.id();
  const PromptBlocks prompt{.hash_block_size = cohort.hash_block_size,
                            .prompt_tokens = query.prompt_tokens,
                            .lookahead = cohort.lookahead,
                            .contents = *names.Contents(cohort.hash_block_size, cohort.lookahead),
                            .hashes = {}};
  const std::vector<WorkerMatch> matches = index_.Match(prompt, {&id, 1});
  if (matches.empty()) return {};
  const WorkerMatch& match = matches[0];
  return {.gpu = match.gpu_tokens > 0 || match.unnamed_gpu > 0,
          .with_cpu = match.with_cpu_tokens > 0 || match.has_unnamed};
}

void QueryEngine::OfferNames(WorkerIngest& source, const Cohort& cohort, int64_t units,
                             PromptNames& names) {
  // A content of another lookahead is not the content of the hash.
  if (cohort.chain->form.lookahead != cohort.lookahead) return;
  const SharedChain& hashes = names.Chain(*cohort.chain, cohort.hash_block_size);
  const auto& contents = names.Contents(cohort.hash_block_size, cohort.lookahead);
  // Each of the two lists may end early, before a block that the query does not describe.
  const size_t named = std::min({static_cast<size_t>(units), hashes->size(), contents->size()});
  source.OfferNames(
      {.hashes = hashes, .contents = contents, .units = named, .scheme = cohort.chain->scheme});
}

void QueryEngine::MatchCohort(const Query& query, const Cohort& cohort,
                              std::span<const WorkerId> workers, PromptNames& names,
                              Matches& matches) const {
  SharedPrefixes prefixes;
  bool over_budget = false;
  PromptBlocks prompt{.hash_block_size = cohort.hash_block_size,
                      .prompt_tokens = query.prompt_tokens,
                      .lookahead = query.by_tokens ? cohort.lookahead : 0,
                      .contents = {},
                      .hashes = query.hashes,
                      .integer_hashes = query.borrowed_hashes};
  if (cohort.by_content) {
    prompt.contents = *names.Contents(cohort.hash_block_size, cohort.lookahead);
    prefixes = names.Contents(cohort.hash_block_size, cohort.lookahead);
  }
  if (cohort.chain) {
    const SharedChain& hashes = names.Chain(*cohort.chain, cohort.hash_block_size);
    over_budget = hashes == nullptr;
    if (hashes) prompt.hashes = *hashes;
  }
  // The names end early in three cases: embeddings have no digests for this block size, items
  // overlap, or the query has the hashes of only a part of the prompt.
  const int64_t named = std::max(
      {std::ssize(prompt.contents), std::ssize(prompt.hashes), std::ssize(prompt.integer_hashes)});
  const bool cut = !over_budget && named < HashedUnits(query.prompt_tokens, cohort.hash_block_size,
                                                       cohort.lookahead);
  if (!prefixes) prefixes = PromptNames::PrefixesOf(prompt.hashes);
  if (prompt.prompt_tokens == 0) {
    const int64_t units = std::max(std::ssize(prompt.hashes), std::ssize(prompt.integer_hashes));
    prompt.prompt_tokens = units * cohort.hash_block_size + 1;
  }
  for (WorkerMatch& match : index_.Match(prompt, workers, policy_)) {
    const WorkerId worker = match.worker;
    matches[worker] = {std::move(match), cohort.hash_block_size, prefixes, over_budget, cut};
  }
}

std::string QueryEngine::WhyNoMatch(const WorkerIngest& source, const Query& query,
                                    const Plan& plan, const Matched* matched) const {
  // Check again: the source may have been reset during the match.
  const SourceStatus status = status_of_(source.id());
  if (std::string reason = WhyNoState(source, status, query); !reason.empty()) return reason;
  if (!plan.reason.empty()) return plan.reason;
  if (matched == nullptr && plan.cohort.hash_block_size == 0) {
    return "no store shows the worker's hash_block_size: set hash_block_size or groups";
  }
  if (matched == nullptr) return "the query's hash_block_size is not the worker's";
  if (matched->over_budget) return "budget: the queried engines use too many hash schemes";
  return matched->cut
             ? "the query does not describe the whole prompt: items overlap, or hashes, or digests "
               "of embeddings for this hash_block_size, are missing"
             : "";
}

void QueryEngine::Prove(const WorkerIngest& source, const Query& query, const Plan& plan,
                        PromptNames& names, QueryAnswer& answer) const {
  const bool by_chain = plan.cohort.chain.has_value();
  const bool lacks_host_blocks = source.lacks_host_blocks();
  // Chunked local attention has hits without blocks.
  const bool has_hit = answer.match.gpu_tokens > 0 && !index_.ShapeOf(source.id()).has_chunks;
  ContentHits hidden{.gpu = false, .with_cpu = false};
  if (answer.reason.empty() && plan.proven_by_hit && !has_hit) {
    hidden = HitsByContent(source, plan.cohort, query, names);
  }
  if (hidden.gpu) answer.reason = kOtherHashes;
  // The match may have read an index that was just reset, although the source was synced before and
  // after the match: the status is older than the reset, or the source is synced again. The number
  // of replacements is read last, so that the check covers everything that the proof has read.
  if (answer.reason.empty() && source.replacements() != answer.replacements) {
    answer.reason = kReplaced;
  }
  if (answer.reason.empty()) {
    const IndexCounters counters =
        answer.match.unnamed_gpu > 0 ? source.index_counters() : IndexCounters();
    answer.reason = WhyNoProof(answer, by_chain, counters);
  }
  const auto difference = source.reuse_contradiction();
  if (answer.reason.empty() && difference) {
    answer.reuse_contradicts = true;
    answer.reason = WhyContradicted(*difference, answer.hash_block_size);
  }
  answer.exact = answer.reason.empty();
  if (!answer.exact) return;
  answer.reason_with_cpu = WhyNoProofOfLoads(answer, by_chain);
  const bool hidden_loads = hidden.with_cpu && answer.match.with_cpu_tokens == 0;
  if (answer.reason_with_cpu.empty() && hidden_loads) answer.reason_with_cpu = kOtherHashes;
  if (answer.reason_with_cpu.empty() && lacks_host_blocks) {
    answer.reason_with_cpu = "blocks in host memory are missing, or a reset may have dropped them";
  }
  answer.exact_with_cpu = answer.reason_with_cpu.empty();
}

Result<std::vector<QueryAnswer>> QueryEngine::Answer(const Query& query,
                                                     const SourceList& sources) const {
  Result<std::vector<WorkerIngest*>> selected = Select(query.workers, sources);
  if (!selected.ok()) return selected.status();
  // Read next_seq before the match, because the match must include every batch below next_seq.
  std::vector<QueryAnswer> answers;
  std::vector<Plan> plans;
  std::map<Cohort, std::vector<WorkerId>> cohorts;
  answers.reserve(selected->size());
  plans.reserve(selected->size());
  for (const WorkerIngest* source : *selected) {
    answers.push_back(Describe(*source, query));
    plans.push_back(PlanFor(*source, answers.back(), query));
    const Cohort& cohort = plans.back().cohort;
    const bool other_size =
        query.hash_block_size != 0 && query.hash_block_size != cohort.hash_block_size;
    if (cohort.hash_block_size != 0 && !other_size) cohorts[cohort].push_back(source->id());
  }
  PromptNames names(index_.keys(), query);
  Matches matches;
  matches.reserve(selected->size());
  for (const auto& [cohort, workers] : cohorts) {
    MatchCohort(query, cohort, workers, names, matches);
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    QueryAnswer& answer = answers[i];
    WorkerIngest& source = *(*selected)[i];
    const Plan& plan = plans[i];
    answer.named_by = plan.named_by;
    const auto it = matches.find(source.id());
    Matched* const matched = it == matches.end() ? nullptr : &it->second;
    if (matched != nullptr) {
      answer.match = std::move(matched->match);
      answer.hash_block_size = matched->hash_block_size;
      answer.prefixes = matched->prefixes;
      if (plan.names_blocks && answer.match.unnamed_units > 0) {
        OfferNames(source, plan.cohort, answer.match.unnamed_units, names);
      }
    }
    if (answer.reason.empty()) answer.reason = WhyNoMatch(source, query, plan, matched);
    Prove(source, query, plan, names, answer);
  }
  return answers;
}

}  // namespace kvcast::router
