// SPDX-License-Identifier: Apache-2.0
#include "src/http/host_rules.h"

#include <algorithm>
#include <utility>

#include "src/http/ip_network.h"
#include "src/http/loopback.h"
#include "src/http/lower_case.h"

namespace kvcast {
namespace {

constexpr char kForeign[] = "origin: requests from pages of other sites are refused";

// The Host header without its port.
std::string_view NameOf(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.rfind(':'));
}

}  // namespace

HostRules::HostRules(bool local_only, std::vector<std::string> names)
    : local_only_(local_only), names_(std::move(names)) {
  for (std::string& name : names_) name = LowerCase(name);
}

bool HostRules::IsOwn(std::string_view host) const {
  if (IsLoopbackHost(host)) return true;
  const std::string name = LowerCase(NameOf(host));
  if (std::ranges::find(names_, name) != names_.end()) return true;
  return !local_only_ && ParseIpAddress(name).has_value();
}

const char* HostRules::WhyRefused(std::string_view host, std::string_view origin,
                                  bool changes) const {
  const bool checks_host = local_only_ || !names_.empty();
  if (checks_host && !host.empty() && !IsOwn(host)) {
    return "host: not a loopback name, and not an allowed host";
  }
  if (origin.empty() || !changes) return nullptr;
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos || origin.substr(scheme + 3) != host) return kForeign;
  return IsOwn(host) ? nullptr : kForeign;
}

}  // namespace kvcast
