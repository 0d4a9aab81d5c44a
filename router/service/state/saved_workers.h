// SavedWorkers: the workers whose state was saved, in a state folder or by another router. A worker
// that is added gets its saved state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
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

enum class StateOrigin : uint8_t { kFolder, kPeer };
inline constexpr size_t kStateOrigins = 2;

struct RestoreCounters {
  uint64_t files_refused = 0;     // damaged, of another version, or of another secret
  uint64_t workers_restored = 0;  // followed with their saved state
  uint64_t workers_refused = 0;   // their state is damaged, or does not fit their registration
};

// Thread-safe.
class SavedWorkers {
 public:
  // `log` may be nullptr; otherwise it must outlive the object.
  explicit SavedWorkers(SourceText text_of, Logger* log = nullptr) : text_of_(text_of), log_(log) {}

  // Reads the files of the folder. If a worker is in several files, its newest state counts. A file
  // that cannot be used is logged and ignored. Removes each file `kept-*.state` whose workers all
  // have newer states in other files. Call it before AddFromPeer.
  void Load(const StateFolder& folder);
  // Adds the workers of a file of another router. Their states replace those of a folder until
  // DropPeer, because the other router has followed the workers until now.
  void AddFromPeer(std::shared_ptr<const StateFile> file);
  // Renames the files of `folder` from which Load has taken a state to `kept-*.state`, so that no
  // save replaces these files. Must be called before each save: a file that has its new name does
  // not change. Returns the names of the files with states that are not restored yet. A state of
  // the folder that a state of the other router replaces is not restored yet. Load reads the files
  // `kept-*.state` too.
  std::set<std::string> KeepFiles(const StateFolder& folder);
  // Drops the states of the folder that were not restored.
  void DropFolder();
  // True: there is no saved state that can still be restored.
  bool empty() const;
  // Drops the states of the other router that were not restored. The states of the folder that they
  // replaced can then be restored. Returns the number of dropped states.
  size_t DropPeer();

  // Restores the saved state of a worker; see RestoreWorker. Only a worker that is registered
  // exactly as it was saved gets its state. The state stays until on_followed is called. A refused
  // state is dropped. The object must outlive on_followed.
  std::optional<RestoredWorker> Restore(PrefixIndex& index, const WorkerRegistration& registration,
                                        WorkerIngest& source);
  RestoreCounters counters(StateOrigin origin) const;

 private:
  struct FolderFile {
    std::string name;  // changes in KeepFiles
    int64_t saved_at_ms = 0;
  };
  struct Place {
    std::shared_ptr<const StateFile> file;
    uint32_t number = 0;
    StateOrigin origin = StateOrigin::kFolder;
    std::shared_ptr<const FolderFile> from = {};  // nullptr: kPeer
  };
  void Add(const std::shared_ptr<const StateFile>& file, const std::string& name);
  void DropOldFiles(const StateFolder& folder);
  // Makes room in the index for all files, at the first call.
  void Reserve(PrefixIndex& index);
  // Drops the states of the registration, and adds 1 to the counter. `origin`: of the state that
  // Restore used.
  void DropAndCount(const std::string& registration, StateOrigin origin,
                    uint64_t RestoreCounters::*counter);
  RestoreCounters& CountersOf(StateOrigin origin) KV_REQUIRES(mutex_) {
    return counters_[static_cast<size_t>(origin)];
  }

  const SourceText text_of_;
  Logger* const log_;
  mutable Mutex mutex_;
  std::map<std::string, Place> by_registration_ KV_GUARDED_BY(mutex_);
  // States of the folder for which by_registration_ has a state of the other router.
  std::map<std::string, Place> replaced_ KV_GUARDED_BY(mutex_);
  // The files from which Load has taken a state, also if all their states are restored.
  std::vector<std::shared_ptr<FolderFile>> files_ KV_GUARDED_BY(mutex_);
  bool reserved_ KV_GUARDED_BY(mutex_) = false;
  std::array<RestoreCounters, kStateOrigins> counters_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::router
