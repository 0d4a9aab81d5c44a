// IpNetwork: a network of IP addresses, in CIDR notation. IPv4 addresses that are mapped into IPv6
// count as IPv4 addresses.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvcast {

using IpBytes = std::array<uint8_t, 16>;  // an IPv4 address as ::ffff:A.B.C.D

// Reads "A.B.C.D" with four decimal numbers, an IPv6 address, or an IPv6 address in brackets.
// nullopt: another form, for example a name, or a form that only some resolvers read as an address
// ("127.1", "0x7f000001").
std::optional<IpBytes> ParseIpAddress(std::string_view text);

class IpNetwork {
 public:
  // Reads "ADDRESS/BITS" or "ADDRESS". The bits of the address after the prefix must be 0. nullopt:
  // another form.
  static std::optional<IpNetwork> Parse(std::string_view text);
  bool Contains(const IpBytes& address) const;

 private:
  IpBytes prefix_{};
  int bits_ = 0;  // length of the prefix, 0 to 128; IPv4: in the mapped form
};

}  // namespace kvcast
