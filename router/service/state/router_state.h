// RouterState: the saved state of a router (`kvcast router --state`), and its saver.
//
// The saved state has the blocks of each worker whose blocks a replay can prove after a restart;
// see WorkerIngest::CanSave. The saved state also has the groups and rules that the router has
// learned, the position in the stream, and the sources that clients have registered. Sources of
// files, DNS, Kubernetes and the configuration are read again, and get their saved blocks when they
// are added.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"
#include "router/service/state/client_source_file.h"
#include "router/service/state/saved_workers.h"
#include "router/service/state/shard_save.h"
#include "router/service/state/state_folder.h"
#include "router/service/state/state_saver.h"

namespace kvcast::router {

struct StateOptions {
  std::string folder;     // empty: no state is saved
  int64_t period_s = 30;  // between two saves
};

// Values for the metrics page. `restore`: of the folder.
struct StateReport {
  SaveReport save;
  RestoreCounters restore;
};

class RouterState {
 public:
  // `log` may be nullptr; it must outlive the object. Errors: see StateFolder::Open.
  static Result<std::unique_ptr<RouterState>> Open(const StateOptions& options,
                                                   ClientSourceFile::Encode encode, Logger* log);

  const StateFolder& folder() const { return folder_; }
  // The secret of the content keys in the saved state.
  uint64_t secret() const { return folder_.secret(); }
  // See StateFolder::SetSecret. REQUIRES: BeginSaving was not called.
  Status SetSecret(uint64_t secret) { return folder_.SetSecret(secret); }
  // The saved text of the clients' sources; see ClientSourceFile::Read.
  Result<std::string> ReadClientSources() const { return client_sources_.Read(); }
  // Logs that the saved text cannot be used; see ClientSourceFile::Refuse.
  void RefuseClientSources(const Status& why);
  // See ClientSourceFile::Keep and ClientSourceFile::Forget.
  void KeepClientSource(const WorkerRegistration& source) { client_sources_.Keep(source); }
  bool ForgetClientSource(std::string_view name) { return client_sources_.Forget(name); }
  // Must be called after a client has added or removed a source. Failures are logged.
  void WriteClientSources(const Fleet& fleet);
  // Starts to save. Call it once. The index, the fleet and `saved` must outlive the saver. The
  // secret of `router` must be secret(). `saved`: the states that folder() had at the start.
  void BeginSaving(SavedRouter router, SavedWorkers& saved);
  // Saves a last time. No-op before BeginSaving, and in a second call. Must be called before the
  // fleet is destroyed.
  void StopSaving();
  // Thread-safe.
  SaveReport report() const;

 private:
  RouterState(const StateOptions& options, StateFolder folder, ClientSourceFile::Encode encode,
              Logger* log);

  const int64_t period_ms_;
  StateFolder folder_;
  Logger* const log_;
  ClientSourceFile client_sources_;
  mutable Mutex mutex_;
  std::shared_ptr<StateSaver> saver_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::router
