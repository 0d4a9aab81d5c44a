// SPDX-License-Identifier: Apache-2.0
#include "src/http/ip_network.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <string>

namespace kvcast {
namespace {

constexpr int kMappedBits = 96;

// The bits of this byte that belong to a prefix of `bits` bits.
uint8_t MaskOf(size_t byte, int bits) {
  const int in_byte = std::clamp(bits - 8 * static_cast<int>(byte), 0, 8);
  return static_cast<uint8_t>(0xFF00 >> in_byte);
}

}  // namespace

std::optional<IpBytes> ParseIpAddress(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) {
    text = text.substr(1, text.size() - 2);
    if (text.find(':') == std::string_view::npos) return std::nullopt;
  }
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  const std::string address(text);
  IpBytes bytes{};
  if (inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1) return bytes;
  bytes = {};
  bytes[10] = bytes[11] = 0xFF;
  if (inet_pton(AF_INET, address.c_str(), bytes.data() + 12) == 1) return bytes;
  return std::nullopt;
}

std::optional<IpNetwork> IpNetwork::Parse(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const std::string_view address_text = text.substr(0, slash);
  const auto address = ParseIpAddress(address_text);
  if (!address) return std::nullopt;
  const bool v4 = address_text.find(':') == std::string_view::npos;
  int bits = v4 ? 32 : 128;
  if (slash < text.size()) {
    const std::string_view digits = text.substr(slash + 1);
    int given = -1;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, given);
    if (error != std::errc() || stop != end || given < 0 || given > bits) return std::nullopt;
    bits = given;
  }
  IpNetwork network;
  network.prefix_ = *address;
  network.bits_ = v4 ? kMappedBits + bits : bits;
  for (size_t i = 0; i < address->size(); ++i) {
    if (((*address)[i] & ~MaskOf(i, network.bits_) & 0xFF) != 0) return std::nullopt;
  }
  return network;
}

bool IpNetwork::Contains(const IpBytes& address) const {
  for (size_t i = 0; i < address.size(); ++i) {
    if ((address[i] & MaskOf(i, bits_)) != prefix_[i]) return false;
  }
  return true;
}

}  // namespace kvcast
