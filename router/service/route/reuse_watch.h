// ReuseWatch: diagnoses for each worker why its prefixes are not reused, and sums the predicted and
// the observed reuse. Refresh runs the diagnosis, in a thread that answers no requests.
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

// Sums over the requests whose reuse an engine reported.
struct ReuseTotals {
  uint64_t requests = 0;
  uint64_t predicted_tokens = 0;
  uint64_t reused_tokens = 0;
};
// The key is the kind of the group that limited the prediction ("none": no single group) and the
// worker's diagnosis at the time of the feedback.
using ReuseByKindAndCause = std::map<std::pair<std::string, std::string>, ReuseTotals>;

// Thread-safe.
class ReuseWatch {
 public:
  // The diagnosis uses this number of latest answers with a prediction > 0.
  static constexpr size_t kAnswers = 32;
  static constexpr int64_t kRoundMs = 20;

  // Diagnoses workers one after the other until kRoundMs have passed, but at least one worker. The
  // next call continues with the next worker. Only one thread may call Refresh at a time.
  void Refresh(const PrefixIndex& index, const FleetList& fleet,
               const std::function<int64_t()>& steady_ms);
  // Records the predicted and the reused tokens of a request that the worker served. `kind` is the
  // kind of the limiting group; empty: no single group.
  void Note(WorkerId worker, std::string_view kind, const ReuseAnswer& answer);
  // Call if the engine restarted, or if its blocks were dropped or replaced by a snapshot.
  void Reset(WorkerId worker);
  void Remove(WorkerId worker);

  // The diagnosis of the latest Refresh. If this diagnosis has no cause, the latest answers may
  // give a cause; see ApplyAnswers.
  ReuseDiagnosis diagnosis(WorkerId worker) const;
  ReuseByKindAndCause totals(WorkerId worker) const;

 private:
  struct Watched {
    ReuseDiagnosis diagnosis;          // of the latest Refresh
    std::vector<ReuseAnswer> answers;  // ring buffer
    size_t answered = 0;               // answers with a prediction > 0 since the latest reset
    ReuseByKindAndCause totals;
    uint64_t resets = 0;
  };
  void Prune(const FleetList& fleet);
  static ReuseDiagnosis DiagnosisOf(const Watched& watched);

  mutable Mutex mutex_;
  std::unordered_map<WorkerId, Watched> watched_ KV_GUARDED_BY(mutex_);
  size_t next_ = 0;  // the worker to diagnose next; only Refresh uses it
};

}  // namespace kvcast::router
