// ConfiguredSources: makes the fleet follow the sources of the configuration, which SIGHUP changes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/discovery/source_set.h"
#include "router/service/ingest/fleet.h"
#include "router/service/ingest/source_log.h"
#include "router/service/ingest/source_policy.h"
#include "src/base/mutex.h"
#include "src/base/repeater.h"

namespace kvcast::router {

// Follow and Stop are thread-safe.
class ConfiguredSources {
 public:
  static constexpr int64_t kRetryMs = 1000;

  // `fleet` must outlive this object.
  ConfiguredSources(Fleet& fleet, const SourcePolicy& policy, SourceText text_of)
      : fleet_(fleet), sources_(fleet, policy, "configuration", text_of) {}
  // Waits for the retry in progress. The sources stay in the fleet.
  ~ConfiguredSources() = default;

  // Replaces the list, and makes the fleet follow it; see SourceSet::Follow. Polls of new URLs
  // begin at the next Fleet::BeginPolls. kFailedPrecondition: two sources have the same name;
  // nothing changes.
  Result<SourceSet::Changes> Follow(std::vector<WorkerRegistration> sources);
  // From this call on, the sources of the list that cannot be followed are tried again once per
  // kRetryMs, in a thread of its own. `log` gets the changes and the errors, and must outlive this
  // object. Call it once.
  void Begin(SourceLog& log);
  // From this call on, no retry begins. The call does not wait.
  void Stop() { stopping_ = true; }

 private:
  void Retry();

  Fleet& fleet_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;  // held while the sources are followed
  SourceSet sources_ KV_GUARDED_BY(mutex_);
  std::unique_ptr<Repeater> repeater_;  // last: its thread uses the other members
};

}  // namespace kvcast::router
