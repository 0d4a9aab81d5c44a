// HostRules: the Host and Origin headers that a server accepts. The rules protect against requests
// that a browser sends for a page of another site.
//
// If the name of a foreign page resolves to this server ("DNS rebinding"), the browser sends the
// foreign name as Host. The browser then treats the server as part of the foreign site. A browser
// sends an IP address as Host only for a page of this address, so an address cannot be rebound.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast {

class HostRules {
 public:
  // `local_only`: only this machine can reach the server. `names`: names and addresses that clients
  // use, without a port. They are compared without regard to case.
  HostRules(bool local_only, std::vector<std::string> names);

  // nullptr: the request is accepted. Otherwise: one line with the reason of the refusal.
  // `changes`: the method may change data, so it is not GET or HEAD. A header is empty if the
  // request does not have the header.
  const char* WhyRefused(std::string_view host, std::string_view origin, bool changes) const;

 private:
  // True: a browser sends this Host only for a page of this service.
  bool IsOwn(std::string_view host) const;

  const bool local_only_;
  std::vector<std::string> names_;  // in lower case
};

}  // namespace kvcast
