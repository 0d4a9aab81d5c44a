// The configuration file of `kvcast router --config FILE`: one JSON object. All members are
// optional.
//
//   http                 "ADDR:PORT"
//   tls_cert, tls_key    PEM files of the certificate with its chain, and of its key: HTTPS
//   sources              array of sources; see source_json.h
//   weights              object: recompute_token, load_token, active_prefill_token, decode_block,
//                        expected_token, queued_request, affinity_token; see
//                        request_router.h
//   relay, relay_redact  endpoint of the relay, and whether it leaves out token ids; see relay.h
//   allow_remote         true: http, relay and bound sources may listen beyond loopback
//   temperature          of routing decisions; see request_router.h
//   speculative_ms       how long the blocks of a routed prompt are expected; 0: no speculation
//   booking_lifetime_ms  of requests whose end no feedback reports
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "kvcast/core/status.h"
#include "router/service/router_service.h"

namespace kvcast::router {

// Adds the members of `text` to `options`. Not ok: one line that names the wrong member. Unknown
// members are refused.
Status ReadConfig(std::string_view text, RouterOptions& options);

// "ADDR:PORT". An IPv6 ADDR is in brackets.
Status ParseHttpAddress(const std::string& text, HttpOptions& http);

}  // namespace kvcast::router
