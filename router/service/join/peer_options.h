// PeerOptions: another router from which a starting router takes its state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace kvcast::router {

struct PeerOptions {
  // The admin listener of the other router: https://HOST[:PORT], or http:// with a loopback
  // address. Empty: there is no other router.
  std::string url;
  // A file with a token that has the role admin on the other router. Only the owner of the file may
  // have access to it. Empty: no token.
  std::string token_file;
  // PEM file of the authorities that sign the other router's certificate. Empty: the authorities of
  // the system.
  std::string ca_file;
  // Milliseconds from the start until the state must be complete.
  int64_t timeout_ms = 10'000;
  // If no byte arrives for this number of milliseconds, the transfer ends without a state.
  int64_t stall_ms = 3000;
  // True: the process must end, so the transfer ends without a state. Called by any thread. Empty:
  // always false.
  std::function<bool()> stopping;
};

}  // namespace kvcast::router
