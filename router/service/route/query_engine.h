// QueryEngine: computes one answer per worker for a query.
//
// A query by tokens is matched by content. A match by content does not depend on the engine's hash
// scheme. In three cases the content is not enough: the worker has blocks with unknown content, the
// path of the LoRA adapter enters the hash, or the source sends no tokens. QueryEngine then
// computes the hashes of the worker's engine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/route/query.h"

namespace kvcast::router {

// Thread-safe. `index` must outlive the QueryEngine.
class QueryEngine {
 public:
  // Returns the status of a source, with the WorkerIngest::replacements of the same time or of an
  // earlier time.
  using StatusOf = std::function<SourceStatus(WorkerId)>;
  // `now` returns seconds since the Unix epoch, on a clock that agrees with the workers' clocks.
  // Empty: the answers have no event age.
  // `policy`: with a policy other than kExact, no answer is exact.
  QueryEngine(const PrefixIndex& index, StatusOf status_of, std::function<double()> now = {},
              MatchPolicy policy = MatchPolicy::kExact);

  // Returns one answer per requested worker, in the order of the sources. Not ok: a worker name is
  // unknown.
  Result<std::vector<QueryAnswer>> Answer(const Query& query, const SourceList& sources) const;

 private:
  // Everything except hash_block_size that determines the engine's hashes of the prompt.
  struct ChainKey {
    HashScheme scheme;
    ChainForm form;
    std::string lora_path;
    bool operator<(const ChainKey& other) const;
  };
  // Workers that are matched by the same names of blocks: content keys, hashes, or both.
  struct Cohort {
    int64_t hash_block_size = 0;
    int64_t lookahead = 0;
    bool by_content = false;
    std::optional<ChainKey> chain;  // of a query by tokens
    bool operator<(const Cohort& other) const;
  };
  // How the index is queried for one worker. `reason`: why the answer will not be exact. Empty: no
  // reason is known.
  struct Plan {
    Cohort cohort;
    NamedBy named_by = NamedBy::kContent;
    std::string reason;
    // Only for a prompt of a LoRA adapter. True: a hit proves that the engine uses this chain,
    // because no other scheme gives the same hashes. Without a hit, the answer is proven if no
    // block of the worker can belong to this prompt and this adapter name.
    bool proven_by_hit = false;
    // True: the index may learn the content keys of the blocks that the chain finds, because two
    // conditions hold. The engine uses this chain, and the content keys describe everything that
    // the hashes cover.
    bool names_blocks = false;
  };
  // The block names of one query's prompt. Each chain is computed once.
  class PromptNames;
  struct Matched {
    WorkerMatch match;
    int64_t hash_block_size = 0;
    SharedPrefixes prefixes;   // see QueryAnswer
    bool over_budget = false;  // the query reached its limit and computed no chain for this worker
    bool cut = false;          // the query describes only the first blocks of the prompt
  };
  using Matches = std::unordered_map<WorkerId, Matched>;

  // Gives the source the names of the blocks that the chain found. The source applies the names
  // later.
  static void OfferNames(WorkerIngest& source, const Cohort& cohort, int64_t units,
                         PromptNames& names);

  static Result<std::vector<WorkerIngest*>> Select(const std::vector<std::string>& names,
                                                   const SourceList& sources);
  // Returns a reason why no answer from the current state of the source is exact. Empty: there is
  // none.
  std::string WhyNoState(const WorkerIngest& source, const SourceStatus& status,
                         const Query& query) const;
  // The current state of the source, without the match.
  QueryAnswer Describe(const WorkerIngest& source, const Query& query) const;
  // Whether the worker may hold tokens of the prompt, for any path of the LoRA adapter.
  struct ContentHits {
    bool gpu = true;
    bool with_cpu = true;  // on the GPU or a lower tier
  };
  ContentHits HitsByContent(const WorkerIngest& source, const Cohort& cohort, const Query& query,
                            PromptNames& names) const;
  Plan PlanFor(const WorkerIngest& source, const QueryAnswer& answer, const Query& query) const;
  // Returns the reason why the content keys of the prompt may differ from those of the engine's
  // blocks. `path_decides`: the path of a LoRA adapter is part of the content.
  static std::string WhyContentIsHidden(const WorkerIngest& source, const HashInputs& inputs,
                                        bool path_decides);
  // Completes the plan for a prompt of a LoRA adapter whose path is known: the plan queries the
  // index by the engine's hash chain.
  static void PlanByPath(const WorkerIngest& source, const SchemeVerdict& verdict,
                         const Query& query, const HashInputs& inputs, Plan& plan);
  void MatchCohort(const Query& query, const Cohort& cohort, std::span<const WorkerId> workers,
                   PromptNames& names, Matches& matches) const;
  // Returns a reason why the answer is not exact. The reason does not depend on the result of the
  // match. Empty: there is no such reason. `matched` is nullptr if the index was not queried.
  std::string WhyNoMatch(const WorkerIngest& source, const Query& query, const Plan& plan,
                         const Matched* matched) const;
  // Sets `exact`, `exact_with_cpu` and their reasons. An answer that already has a reason keeps
  // this reason.
  void Prove(const WorkerIngest& source, const Query& query, const Plan& plan, PromptNames& names,
             QueryAnswer& answer) const;

  const PrefixIndex& index_;
  StatusOf status_of_;
  std::function<double()> now_;
  const MatchPolicy policy_;
};

}  // namespace kvcast::router
