// ShardSave: a child process writes the state of the workers of one shard to a file or to a pipe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"
#include "router/service/discovery/source_set.h"
#include "router/service/ingest/fleet.h"
#include "router/service/state/forked_save.h"
#include "router/service/state/state_file.h"

namespace kvcast::router {

// The router whose state is saved.
struct SavedRouter {
  const PrefixIndex& index;
  Fleet& fleet;
  SourceText text_of = nullptr;
  uint64_t secret = 0;  // of the content keys of the index
  // Returns seconds since the Unix epoch.
  std::function<double()> now;
};

// Thread-compatible.
class ShardSave {
 public:
  // Waits for the batch in progress of each worker, then starts the child. `fd`: see
  // StateFileWriter; it must be open until Begin returns. `router` must outlive the call.
  void Begin(const SavedRouter& router, size_t shard, int fd);
  // Number of workers in the saved state.
  size_t workers() const { return workers_; }
  // The time for which no batch of the shard was applied.
  double pause_seconds() const { return pause_seconds_; }
  // See ForkedSave::Wait. The destructor ends a child that still writes.
  Status Wait() { return save_.Wait(); }
  // See ForkedSave::Kill.
  void Kill() { save_.Kill(); }

 private:
  size_t workers_ = 0;
  double pause_seconds_ = 0;
  std::optional<StateFileWriter> writer_;
  ForkedSave save_;
};

}  // namespace kvcast::router
