// StateSaver: saves the state of all workers once per period, one shard after the other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "kvcast/core/status.h"
#include "router/service/state/saved_workers.h"
#include "router/service/state/shard_save.h"
#include "router/service/state/state_folder.h"
#include "src/base/logger.h"
#include "src/base/mutex.h"
#include "src/base/repeater.h"

namespace kvcast::router {

// A file, DNS or Kubernetes may list a source some minutes after the start. During the first
// kKeepUnclaimedMs after the start, a save keeps the files with saved states of workers that were
// not added yet.
inline constexpr int64_t kKeepUnclaimedMs = 600000;

// Counters since the start, and properties of the latest save.
struct SaveReport {
  uint64_t saves = 0;
  uint64_t errors = 0;
  // Time of the latest save without an error, since the Unix epoch. 0: there is no such save.
  int64_t saved_at_ms = 0;
  size_t workers = 0;
  int64_t bytes = 0;
  double seconds = 0;
  double pause_seconds = 0;  // the longest time for which no batch of a shard was applied
};

class StateSaver {
 public:
  // The folder, the index, the fleet, `saved` and the log must outlive the saver; `log` may be
  // nullptr. `saved`: the states that the folder had at the start.
  StateSaver(const StateFolder& folder, SavedRouter router, SavedWorkers& saved, Logger* log);
  // Waits for the save in progress.
  ~StateSaver() = default;

  // Saves once per period, in a thread of its own. Call it once.
  void Begin(int64_t period_ms);
  // Ends the thread, and saves once more.
  void SaveAndStop();
  // Saves now. Until the first save without an error, the folder keeps all states that it had at
  // the start. From then on, it has the old or the new state of each shard at any time.
  // Thread-safe: a call waits for the save in progress. Not ok: the message is one line about the
  // first failed shard. Each failed shard keeps its old state.
  Status Save();
  SaveReport report() const;

 private:
  Status SaveShard(size_t shard, SaveReport& report);
  void RemoveOthers(const std::set<std::string>& kept);

  const StateFolder& folder_;
  const SavedRouter router_;
  SavedWorkers& saved_;
  Logger* const log_;
  const int64_t began_ms_;
  Mutex save_mutex_;  // held during a save
  mutable Mutex mutex_;
  SaveReport report_ KV_GUARDED_BY(mutex_);
  std::unique_ptr<Repeater> repeater_;  // last: its thread uses the other members
};

}  // namespace kvcast::router
