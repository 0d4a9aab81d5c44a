// ServiceReplay: feeds a recorded run into the service's own source and query. Compares every
// answer with the engine's own lookup.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/conformance/router/told_properties.h"
#include "apps/conformance/scenario/scenario_file.h"
#include "apps/conformance/scenario/scenario_prompts.h"
#include "kvcast/router/prefix_index.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/route/query_engine.h"
#include "src/residency/mirror.h"

namespace kvcast::tools {

// The properties of the engine that are configured in the service; see ToldProperties.
enum class Told : uint8_t { kAll, kNothing };
enum class Scheme : uint8_t {
  kFound,    // the seed is among the candidates
  kUnknown,  // no candidate fits: the detector proves nothing
};

struct ServiceReplayOptions {
  Told told = Told::kAll;
  Scheme scheme = Scheme::kFound;
  // The batches of this number of steps are lost before the router joins. 0: no batch is lost.
  size_t join_at = 0;
  // True: at the join, the router gets a snapshot of the blocks that the engine holds. A snapshot
  // contains only hashes.
  bool snapshot = false;
};

// Counts of the answers of a replay.
struct ServiceFigures {
  uint64_t probes = 0;
  uint64_t equal = 0;
  uint64_t over = 0;                          // answers that predicted too many tokens
  uint64_t under = 0;                         // answers that predicted too few tokens
  uint64_t exact = 0;                         // answers marked as exact
  uint64_t exact_wrong = 0;                   // exact answers that were wrong
  std::map<std::string, uint64_t> not_exact;  // by reason, with the numbers removed
  // Answers that were not exact, although the scheme was proven for every kind of key of the
  // prompt.
  uint64_t proven_not_exact = 0;
  // Certain answers that were not equal, although the scheme was proven for these kinds of key.
  uint64_t proven_not_equal = 0;
  // Answers after the first kSettledHits probes with a hit.
  uint64_t settled = 0;
  uint64_t settled_equal = 0;
  uint64_t settled_exact = 0;

  void Add(const ServiceFigures& other);
};
inline constexpr uint64_t kSettledHits = 20;

class ServiceReplay {
 public:
  // Called with the result of every check. If the check failed, `difference` describes the
  // difference.
  using Check = std::function<void(bool equal, const std::string& difference)>;

  // `scenario` must outlive the result.
  static Result<std::unique_ptr<ServiceReplay>> Create(const Scenario& scenario,
                                                       const ServiceReplayOptions& options,
                                                       Check check);
  // Not ok: a step cannot be encoded, or the source refuses a batch or the snapshot.
  Status Run();

  const ServiceFigures& figures() const { return figures_; }

 private:
  ServiceReplay(const Scenario& scenario, const ServiceReplayOptions& options, Check check)
      : scenario_(scenario), options_(options), check_(std::move(check)) {}
  Status Send(const ScenarioStep& step);
  Status JoinBySnapshot();
  void RunProbe(int64_t step, const ScenarioProbe& probe);
  void CheckFinal(const ScenarioFinal& recorded);

  const Scenario& scenario_;
  const ServiceReplayOptions options_;
  const Check check_;
  PrefixIndex index_;
  std::shared_ptr<router::WorkerIngest> source_;
  SourceState state_ = SourceState::kSynced;
  residency::Mirror held_;  // the engine's blocks at the time of the join
  ScenarioPrompts prompts_;
  ServiceFigures figures_;
  uint64_t hits_ = 0;
};

// Returns the configuration of the source in the service. With Told::kNothing, it has only the
// name, the candidate NONE_HASH (with Scheme::kFound), and for a snapshot the replay endpoint.
router::WorkerRegistration SourceOf(const ToldProperties& told, const ServiceReplayOptions& options,
                                    const std::string& name);

}  // namespace kvcast::tools
