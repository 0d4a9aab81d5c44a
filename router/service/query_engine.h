// QueryEngine: from a query to one answer per worker.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/prefix_index.h"
#include "kvcast/status.h"
#include "kvcast/subscriber.h"
#include "router/service/query.h"
#include "router/service/source.h"

namespace kvcast::router {

using SourceList = std::vector<std::shared_ptr<Source>>;

// Thread-safe. Borrows all it is given.
class QueryEngine {
 public:
  using StatusOf = std::function<SourceStatus(WorkerId)>;
  // `now`: seconds since the epoch, on a clock that agrees with the workers'; empty: event ages are
  // not given.
  QueryEngine(const PrefixIndex& index, StatusOf status_of, std::function<double()> now = {});

  // One answer per worker asked for, in order of the sources. Not ok: an unknown worker name.
  Result<std::vector<QueryAnswer>> Answer(const Query& query, const SourceList& sources) const;

 private:
  // Workers that one hash chain serves.
  struct ChainKey {
    HashScheme scheme;            // engine-hash mode
    int tokens_per_position = 0;  // token mode; 0: not
    int64_t unit = 0;
    friend auto operator<=>(const ChainKey&, const ChainKey&) = default;
  };
  using Cohorts = std::map<ChainKey, std::vector<WorkerId>>;

  static Result<std::vector<const Source*>> Select(const std::vector<std::string>& names,
                                                   const SourceList& sources);
  // The source as it is now: all but the match.
  QueryAnswer Describe(const Source& source, const Query& query) const;
  Cohorts Group(const std::vector<const Source*>& selected, const std::vector<QueryAnswer>& answers,
                const Query& query) const;
  static std::vector<BlockHash> MakeChain(const ChainKey& key, const Query& query);

  const PrefixIndex& index_;
  StatusOf status_of_;
  std::function<double()> now_;
};

}  // namespace kvcast::router
