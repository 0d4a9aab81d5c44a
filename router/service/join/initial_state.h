// InitialState: the saved states of a folder and of another router, and the secret of the content
// keys. A router has them before it follows a source.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kvcast/core/status.h"
#include "router/service/discovery/http_client.h"
#include "router/service/join/peer_join.h"
#include "router/service/join/peer_options.h"
#include "router/service/state/client_source_file.h"
#include "router/service/state/router_state.h"
#include "router/service/state/saved_workers.h"
#include "src/base/logger.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {

struct InitialState {
  uint64_t secret = NewSeed();          // of the content keys
  std::unique_ptr<RouterState> state;   // nullptr: no state is saved
  std::unique_ptr<SavedWorkers> saved;  // nullptr: no worker has a saved state
  std::optional<PeerJoinReport> join;   // nullopt: there is no other router
};

// Opens the folder, if `state` has one, and takes the state of the other router, if `peer` has one.
// Blocks for at most PeerOptions::timeout_ms, and some time to read the files. The secret is:
// - the folder's secret, if the folder has a saved state. The state of the other router is used
//   only if this state has the same secret.
// - otherwise the other router's secret, if its state has arrived. The folder then gets this
//   secret.
// - otherwise the folder's secret. Without a folder, the secret is new.
// Errors: see RouterState::Open and StateFolder::SetSecret; kInvalidArgument for a wrong URL, or
// for a URL without `make_client`. A failed join is no error.
Result<InitialState> OpenInitialState(const StateOptions& state, const PeerOptions& peer,
                                      const MakeHttpClient& make_client, SourceText text_of,
                                      ClientSourceFile::Encode encode, Logger* log);

}  // namespace kvcast::router
