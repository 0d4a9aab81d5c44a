// HostRules: the Host and Origin headers that a server accepts. They protect against requests that
// a page of another site makes a browser send.
//
// If the name of a foreign page resolves to this server ("DNS rebinding"), the browser sends the
// foreign name as Host, and takes the server for the page's own. A browser sends an IP address as
// Host only for a page of this address, so an address cannot be rebound.
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

  // nullptr: the request is accepted. Else: one line that states why not. `changes`: the request is
  // neither GET nor HEAD. An empty header: the request does not have it.
  const char* WhyRefused(std::string_view host, std::string_view origin, bool changes) const;

 private:
  // True: a browser sends this Host only for a page of this service.
  bool IsOwn(std::string_view host) const;

  const bool local_only_;
  std::vector<std::string> names_;  // in lower case
};

}  // namespace kvcast
