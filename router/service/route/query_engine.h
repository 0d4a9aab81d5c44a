// QueryEngine: from a query to one answer per worker.
//
// A query by tokens asks by content, which needs no knowledge of how an engine hashes. The engine's
// own hashes are computed only where content does not decide: for blocks whose content is not
// known, for LoRA adapters whose path enters the hash, and for sources that send no tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/ingest/source.h"
#include "router/service/route/query.h"

namespace kvcast::router {

// Thread-safe. Borrows all it is given.
class QueryEngine {
 public:
  using StatusOf = std::function<SourceStatus(WorkerId)>;
  // `now`: seconds since the epoch, on a clock that agrees with the workers'; empty: event ages are
  // not given. `policy`: with another one than kExact no answer is exact.
  QueryEngine(const PrefixIndex& index, StatusOf status_of, std::function<double()> now = {},
              MatchPolicy policy = MatchPolicy::kExact);

  // One answer per worker asked for, in order of the sources. Not ok: an unknown worker name.
  Result<std::vector<QueryAnswer>> Answer(const Query& query, const SourceList& sources) const;

 private:
  // How the engine hashes the prompt.
  struct ChainKey {
    HashScheme scheme;
    ChainForm form;
    std::string lora_path;
    bool operator<(const ChainKey& other) const;
  };
  // Workers that are asked in one way.
  struct Cohort {
    int64_t unit = 0;
    int64_t lookahead = 0;
    bool by_content = false;
    std::optional<ChainKey> chain;  // of a query by tokens
    bool operator<(const Cohort& other) const;
  };
  // How one worker is asked, and why the answer will not be exact; empty: no reason yet.
  struct Plan {
    Cohort cohort;
    NamedBy named_by = NamedBy::kContent;
    std::string reason;
    // A hit shows that the chain is the engine's: no other hash agrees. Without one, the answer is
    // proven if nothing of the prompt is held under the adapter's name.
    bool proven_by_hit = false;
    // What the chain finds may be named: it is the engine's, and the contents say all that it does.
    bool names_blocks = false;
  };
  // The names of one query's prompt, each made once.
  class PromptNames;
  // Leaves what the chain found to the source, to be named.
  static void OfferNames(Source& source, const Cohort& cohort, int64_t units, PromptNames& names);

  static Result<std::vector<Source*>> Select(const std::vector<std::string>& names,
                                             const SourceList& sources);
  // The source as it is now: all but the match.
  QueryAnswer Describe(const Source& source, const Query& query) const;
  // Tokens that the worker may have for the prompt, under any path of the adapter.
  struct ContentHits {
    bool gpu = true;
    bool with_cpu = true;
  };
  ContentHits HitsByContent(const Source& source, const Cohort& cohort, const Query& query,
                            PromptNames& names) const;
  Plan PlanFor(const Source& source, const QueryAnswer& answer, const Query& query) const;

  const PrefixIndex& index_;
  StatusOf status_of_;
  std::function<double()> now_;
  const MatchPolicy policy_;
};

}  // namespace kvcast::router
