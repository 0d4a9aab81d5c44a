// RouterState: the saved state of a router (`kvcast router --state`), and its saver.
//
// The saved state has the blocks of each worker with a replay endpoint, because such a worker can
// prove itself after a restart. It also has the groups and rules that the router has learned, the
// position in the stream, and the sources that clients have registered. Sources of files, DNS and
// the configuration are read again, and get their saved blocks when they are added.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/router/content_key.h"
#include "router/service/state/client_source_file.h"
#include "router/service/state/saved_workers.h"
#include "router/service/state/state_folder.h"
#include "router/service/state/state_saver.h"

namespace kvcast::router {

struct StateOptions {
  std::string folder;     // empty: no state is saved
  int64_t period_s = 30;  // between two saves
};

// Values for the metrics page.
struct StateReport {
  SaveReport save;
  RestoreCounters restore;
};

class RouterState {
 public:
  // `log` may be nullptr; it must outlive the object. Errors: see StateFolder::Open.
  static Result<std::unique_ptr<RouterState>> Open(const StateOptions& options, SourceText text_of,
                                                   ClientSourceFile::Encode encode, Logger* log);

  // The keys that belong to the saved names.
  const ContentKeys& keys() const { return keys_; }
  // See RestoreWorker. `index` must outlive the function.
  RestoreWorker RestorerFor(PrefixIndex& index);
  // The saved text of the clients' sources; see ClientSourceFile::Read.
  Result<std::string> ReadClientSources() const { return client_sources_.Read(); }
  // Must be called after a client has added or removed a source. Failures are logged.
  void WriteClientSources(const Fleet& fleet);
  // Starts to save. Call it once. All arguments must outlive the saver. `now`: seconds since the
  // Unix epoch.
  void BeginSaving(const PrefixIndex& index, Fleet& fleet, std::function<double()> now);
  // Saves a last time. No-op before BeginSaving, and in a second call. Must be called before the
  // fleet is destroyed.
  void StopSaving();
  // Thread-safe.
  StateReport report() const;

 private:
  RouterState(const StateOptions& options, StateFolder folder, SourceText text_of,
              ClientSourceFile::Encode encode, Logger* log);

  const int64_t period_ms_;
  const StateFolder folder_;
  const ContentKeys keys_;
  const SourceText text_of_;
  Logger* const log_;
  SavedWorkers saved_;
  ClientSourceFile client_sources_;
  mutable Mutex mutex_;
  std::shared_ptr<StateSaver> saver_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::router
