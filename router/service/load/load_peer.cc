// SPDX-License-Identifier: Apache-2.0
#include "router/service/load/load_peer.h"

#include "kvcast/stream/curve.h"
#include "kvcast/stream/endpoint.h"

namespace kvcast::router {

Result<LoadPeer> ParseLoadPeer(std::string_view text) {
  constexpr std::string_view kKey = ",server_key=";
  const size_t comma = text.find(',');
  LoadPeer peer{.endpoint = std::string(text.substr(0, comma)), .server_key = ""};
  const auto endpoint = ParseEndpoint(peer.endpoint);
  if (!endpoint.ok()) return endpoint.status();
  if (endpoint->transport == Transport::kInproc) {
    return Status(StatusCode::kInvalidArgument, "expected a tcp or ipc endpoint");
  }
  if (comma == std::string_view::npos) return peer;
  if (!text.substr(comma).starts_with(kKey)) {
    return Status(StatusCode::kInvalidArgument,
                  "expected ENDPOINT or ENDPOINT,server_key=PUBLIC-KEY");
  }
  peer.server_key = text.substr(comma + kKey.size());
  if (Status status = CheckCurveKey(peer.server_key); !status.ok()) return status;
  return peer;
}

}  // namespace kvcast::router
