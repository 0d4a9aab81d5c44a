// ReuseWatch: why each worker's prefixes are not reused, kept up to date beside the service's work,
// and the predicted and observed reuse meanwhile.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "router/service/ingest/fleet.h"
#include "router/service/route/reuse_answers.h"
#include "src/base/mutex.h"

namespace kvcast::router {

// "not_enough_data", "none", or the cause's name.
std::string_view DiagnosisName(const ReuseDiagnosis& diagnosis);
// One sentence for the operator.
std::string ExplainDiagnosis(const ReuseDiagnosis& diagnosis, const std::vector<GroupSpec>& groups);

// Requests whose real reuse was fed back.
struct ReuseTotals {
  uint64_t requests = 0;
  uint64_t predicted_tokens = 0;
  uint64_t reused_tokens = 0;
};
// By the kind of the limiting group of the prediction ("none": there was no single one) and by the
// worker's diagnosis when it was fed back.
using ReuseByKindAndCause = std::map<std::pair<std::string, std::string>, ReuseTotals>;

// Thread-safe.
class ReuseWatch {
 public:
  static constexpr size_t kAnswers = 32;  // last answers with a promise that are looked at
  static constexpr int64_t kRoundMs = 20;

  // Diagnoses the workers in turn, for kRoundMs, and at least one. One thread at a time.
  void Refresh(const PrefixIndex& index, const FleetList& fleet,
               const std::function<int64_t()>& steady_ms);
  // The promised and the reused tokens of a request that the worker served. `kind`: of the limiting
  // group; empty: none.
  void Note(WorkerId worker, std::string_view kind, const ReuseAnswer& answer);
  // The engine restarted, or its blocks were forgotten.
  void Reset(WorkerId worker);
  void Remove(WorkerId worker);

  // As of its last turn, with what the answers since show.
  ReuseDiagnosis diagnosis(WorkerId worker) const;
  ReuseByKindAndCause totals(WorkerId worker) const;

 private:
  struct Watched {
    ReuseDiagnosis found;
    std::vector<ReuseAnswer> answers;  // a ring
    size_t answered = 0;               // that there ever were
    ReuseByKindAndCause totals;
    uint64_t resets = 0;
  };
  void Prune(const FleetList& fleet);
  static ReuseDiagnosis DiagnosisOf(const Watched& watched);

  mutable Mutex mutex_;
  std::unordered_map<WorkerId, Watched> watched_ KV_GUARDED_BY(mutex_);
  size_t next_ = 0;  // worker whose turn it is; of Refresh's thread
};

}  // namespace kvcast::router
