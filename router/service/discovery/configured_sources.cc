// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/configured_sources.h"

#include <utility>

namespace kvcast::router {

Result<SourceSet::Changes> ConfiguredSources::Follow(std::vector<WorkerRegistration> sources) {
  const MutexLock lock(mutex_);
  if (Status status = sources_.Set(std::move(sources)); !status.ok()) return status;
  return sources_.Follow();
}

void ConfiguredSources::Begin(SourceLog& log) {
  {
    const MutexLock lock(mutex_);
    sources_.LogTo(log);
  }
  repeater_ = std::make_unique<Repeater>(kRetryMs, kRetryMs, [this] { Retry(); });
}

// A source that another list or a client has followed can be added when this other source has left.
void ConfiguredSources::Retry() {
  const MutexLock lock(mutex_);
  if (stopping_) return;
  if (sources_.Retry().added > 0) fleet_.BeginPolls();
}

}  // namespace kvcast::router
