// SavedWorkers: the workers of all files of a state folder. A worker that is added again gets its
// saved state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/discovery/source_set.h"
#include "router/service/ingest/fleet.h"
#include "router/service/state/state_file.h"
#include "router/service/state/state_folder.h"
#include "src/base/logger.h"
#include "src/base/mutex.h"

namespace kvcast::router {

struct RestoreCounters {
  uint64_t files_refused = 0;     // damaged, of another version, or of another secret
  uint64_t workers_restored = 0;  // with their saved state
  uint64_t workers_refused = 0;   // their state is damaged, or does not fit their registration
};

// Thread-safe.
class SavedWorkers {
 public:
  // Reads the files of the folder. If a worker is in several files, its newest state counts. A file
  // that cannot be used is logged and ignored. `log` may be nullptr.
  SavedWorkers(const StateFolder& folder, SourceText text_of, Logger* log);

  // See RestoreWorker. Only a worker that is registered exactly as it was saved gets its state, and
  // only once.
  std::optional<SavedPosition> Restore(PrefixIndex& index, const WorkerRegistration& registration,
                                       WorkerIngest& source);
  RestoreCounters counters() const;

 private:
  struct Place {
    std::shared_ptr<const StateFile> file;
    uint32_t number = 0;
  };
  void Add(const std::shared_ptr<const StateFile>& file);

  const SourceText text_of_;
  Logger* const log_;
  mutable Mutex mutex_;
  std::map<std::string, Place> by_registration_ KV_GUARDED_BY(mutex_);
  RestoreCounters counters_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::router
