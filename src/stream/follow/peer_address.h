// PeerAddress: an endpoint whose host name is looked up before each connection.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kvcast/stream/endpoint.h"
#include "src/stream/net/name_resolver.h"

namespace kvcast::stream {

// Thread-compatible. All times are in milliseconds of one monotonic clock.
class PeerAddress {
 public:
  // Minimum time between a lookup that found no address and the next lookup.
  static constexpr int64_t kRetryMs = 1000;

  // `endpoint` may be empty. An endpoint that ParseEndpoint refuses counts as numeric.
  explicit PeerAddress(std::string endpoint) {
    const Result<Endpoint> parsed = ParseEndpoint(endpoint);
    if (parsed.ok() && parsed->has_name()) {
      named_ = *parsed;
    } else {
      text_ = std::move(endpoint);
    }
  }

  bool has_name() const { return named_.has_value(); }
  // True: the endpoint has no name, or an address was found since the last Forget.
  bool is_known() const { return !named_ || lookup_.address_known; }
  // The endpoint with the latest numeric address. Empty before the first lookup.
  const std::string& text() const { return text_; }

  // The next Advance looks the name up again.
  void Forget() { lookup_.address_known = false; }
  // Begins a lookup, or takes its result.
  void Advance(NameResolver& resolver, int64_t now_ms) {
    if (is_known()) return;
    if (lookup_.running == nullptr) {
      if (now_ms < lookup_.due_ms) return;
      lookup_.running = resolver.Begin(named_->host);
    }
    if (!lookup_.running->done()) return;
    const std::string address = std::exchange(lookup_.running, nullptr)->address();
    if (address.empty()) {
      lookup_.due_ms = now_ms + kRetryMs;
      return;
    }
    text_ = Endpoint{Transport::kTcp, address, named_->port}.ToString();
    lookup_.address_known = true;
  }

 private:
  struct Lookup {
    std::shared_ptr<const NameLookup> running;
    bool address_known = false;
    int64_t due_ms = INT64_MIN;  // when the next lookup may begin
  };
  std::string text_;
  std::optional<Endpoint> named_;  // nullopt: no name
  Lookup lookup_;
};

}  // namespace kvcast::stream
