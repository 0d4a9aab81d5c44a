// SPDX-License-Identifier: Apache-2.0
#include "router/service/join/initial_state.h"

#include <utility>

namespace kvcast::router {

Result<InitialState> OpenInitialState(const StateOptions& state, const PeerOptions& peer,
                                      const MakeHttpClient& make_client, SourceText text_of,
                                      ClientSourceFile::Encode encode, Logger* log) {
  if (Status status = CheckPeer(peer); !status.ok()) return status;
  if (!peer.url.empty() && make_client == nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  "peer: only the program `kvcast router` can join another router");
  }
  InitialState initial;
  initial.saved = std::make_unique<SavedWorkers>(text_of, log);
  if (!state.folder.empty()) {
    auto folder = RouterState::Open(state, encode, log);
    if (!folder.ok()) return folder.status();
    initial.state = std::move(folder).value();
    initial.saved->Load(initial.state->folder());
    initial.secret = initial.state->secret();
  }
  if (peer.url.empty()) return initial;
  const bool keeps_secret = !initial.saved->empty();
  const auto takes = [&](uint64_t secret) { return !keeps_secret || secret == initial.secret; };
  const PeerJoin join = JoinPeer(peer, make_client(), takes, *initial.saved, log);
  initial.join = join.report;
  if (join.report.end != TransferEnd::kComplete || join.secret == initial.secret) return initial;
  initial.secret = join.secret;
  if (initial.state == nullptr) return initial;
  if (Status status = initial.state->SetSecret(join.secret); !status.ok()) return status;
  return initial;
}

}  // namespace kvcast::router
