// The configuration file of `kvcast router --config FILE`: one JSON object with any of
//
//   http                 "ADDR:PORT"
//   tls_cert, tls_key    PEM files of the certificate with its chain, and of its key: HTTPS
//   sources              array of sources; see source_json.h
//   weights              object: recompute_token, load_token, active_prefill_token, decode_block,
//                        expected_token, queued_request, affinity_token; see
//                        routing_desk.h
//   relay, relay_redact  endpoint of the relay, and whether it leaves out token ids; see relay.h
//   allow_remote         true: http, relay and bound sources may listen beyond loopback
//   temperature          of decisions
//   speculative_ms       how long a routed prefix is expected; 0: no speculation
//   booking_lifetime_ms  of requests whose end no feedback tells
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "kvcast/status.h"
#include "router/service/router_service.h"

namespace kvcast::router {

// Adds what `text` says to `options`. Not ok: one line that names the member. Unknown members are
// refused.
Status ReadConfig(std::string_view text, RouterOptions& options);

// "ADDR:PORT", ADDR in brackets for IPv6.
Status ParseHttpAddress(const std::string& text, HttpOptions& http);

}  // namespace kvcast::router
