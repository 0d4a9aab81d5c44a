// DnsClient: the addresses of a host name, and the targets of a service.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/discovery/source_template.h"

namespace kvcast::router {

// Sends queries to name servers over UDP, and over TCP if the answer is long or /etc/resolv.conf
// has the option use-vc. Does not read /etc/hosts. Thread-compatible.
class DnsClient {
 public:
  // Limits of one query to one name server: seconds of each try, and number of tries over UDP.
  // There is one try over TCP; its time includes the connect.
  static constexpr int kTimeoutSeconds = 2;
  static constexpr int kTries = 2;

  // `server`: ADDR:PORT of a name server, where ADDR is an IPv4 address. Empty: the name servers of
  // /etc/resolv.conf. The search domains always come from /etc/resolv.conf. kInvalidArgument:
  // `server` is malformed.
  static Result<DnsClient> Create(const std::string& server);

  // A name that begins with "_" is a service, and the targets of its SRV records are returned. For
  // other names, the addresses of the A records are returned. If there are no A records, the
  // addresses of the AAAA records are returned. The targets are sorted, and each is unique. Empty:
  // the name does not exist, or it has no such records. kUnavailable: no name server gave a usable
  // answer, or /etc/resolv.conf cannot be read. Blocks until an answer arrives or all tries have
  // failed. If no name server answers for a name in a search domain, only one more name is
  // tried.
  Result<std::vector<SourceTarget>> Look(const std::string& name) const;

 private:
  explicit DnsClient(std::string server) : server_(std::move(server)) {}

  std::string server_;  // empty: /etc/resolv.conf
};

// The search domains in a text with the format of resolv.conf(5): the domains of its last line
// `search`, or the domain of its last line `domain` if that line is later.
std::vector<std::string> SearchDomainsOf(std::string_view resolv_conf);

// The targets in a DNS message, which comes from the network. kUnavailable: the message is
// malformed. `type`: the type of the records, as in <arpa/nameser.h>; other records are skipped.
Result<std::vector<SourceTarget>> TargetsOf(std::span<const uint8_t> message, int type);

}  // namespace kvcast::router
