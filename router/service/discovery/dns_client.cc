// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/dns_client.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <utility>

#include "kvcast/stream/endpoint.h"

namespace kvcast::router {
namespace {

constexpr size_t kMaxMessageBytes = 65535;  // the longest answer over TCP

Status Failed(std::string why) { return {StatusCode::kUnavailable, std::move(why)}; }

struct CloseResolver {
  void operator()(struct __res_state* state) const {
    res_nclose(state);
    delete state;
  }
};
using Resolver = std::unique_ptr<struct __res_state, CloseResolver>;

Result<sockaddr_in> ParseServer(const std::string& text) {
  const auto endpoint = ParseEndpoint("tcp://" + text);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  if (!endpoint.ok() || inet_pton(AF_INET, endpoint->host.c_str(), &address.sin_addr) != 1) {
    return Status(StatusCode::kInvalidArgument,
                  "expected an IPv4 address and a port like 10.0.0.10:53, got '" + text + "'");
  }
  address.sin_port = htons(static_cast<uint16_t>(endpoint->port));
  return address;
}

Result<Resolver> MakeResolver(const std::string& server) {
  auto made = std::make_unique<struct __res_state>();
  *made = {};
  if (res_ninit(made.get()) != 0) return Failed("/etc/resolv.conf cannot be read");
  Resolver resolver(made.release());
  resolver->retrans = DnsClient::kTimeoutSeconds;
  resolver->retry = DnsClient::kTries;
  if (server.empty()) return resolver;
  auto address = ParseServer(server);
  if (!address.ok()) return address.status();
  resolver->nsaddr_list[0] = *address;
  resolver->nscount = 1;
  return resolver;
}

SourceTarget TargetOfAddress(int family, const uint8_t* bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, bytes, text, sizeof(text));
  return {text, 0};
}

std::optional<SourceTarget> TargetOfService(const ns_msg& message, const ns_rr& record) {
  constexpr int kPriorityWeightPort = 6;  // bytes before the name
  if (ns_rr_rdlen(record) <= kPriorityWeightPort) return std::nullopt;
  const uint8_t* const data = ns_rr_rdata(record);
  char name[NS_MAXDNAME];
  const int length = dn_expand(ns_msg_base(message), ns_msg_end(message),
                               data + kPriorityWeightPort, name, sizeof(name));
  if (length < 0) return std::nullopt;
  std::string host = name;
  std::ranges::transform(host, host.begin(), [](unsigned char c) { return std::tolower(c); });
  return SourceTarget{std::move(host), static_cast<int>(ns_get16(data + 4))};
}

}  // namespace

Result<std::vector<SourceTarget>> TargetsOf(std::span<const uint8_t> message, int type) {
  ns_msg parsed;
  if (ns_initparse(message.data(), static_cast<int>(message.size()), &parsed) != 0) {
    return Failed("malformed answer");
  }
  std::vector<SourceTarget> targets;
  for (int i = 0; i < ns_msg_count(parsed, ns_s_an); ++i) {
    ns_rr record;
    if (ns_parserr(&parsed, ns_s_an, i, &record) != 0) return Failed("malformed answer");
    if (ns_rr_type(record) != type || ns_rr_class(record) != ns_c_in) continue;
    if (type == ns_t_srv) {
      auto target = TargetOfService(parsed, record);
      if (!target) return Failed("malformed SRV record");
      // An empty host, or port 0, means that the service is not available.
      if (!target->host.empty() && target->port != 0) targets.push_back(std::move(*target));
      continue;
    }
    const bool is_v4 = type == ns_t_a;
    const size_t bytes = is_v4 ? sizeof(in_addr) : sizeof(in6_addr);
    if (ns_rr_rdlen(record) != bytes) return Failed("malformed address record");
    targets.push_back(TargetOfAddress(is_v4 ? AF_INET : AF_INET6, ns_rr_rdata(record)));
  }
  std::ranges::sort(targets);
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return targets;
}

Result<DnsClient> DnsClient::Create(const std::string& server) {
  if (!server.empty()) {
    const auto address = ParseServer(server);
    if (!address.ok()) return address.status();
  }
  return DnsClient(server);
}

Result<std::vector<SourceTarget>> DnsClient::Look(const std::string& name) const {
  // Each lookup makes a new resolver, because /etc/resolv.conf may change.
  const auto resolver = MakeResolver(server_);
  if (!resolver.ok()) return resolver.status();
  const auto look = [&](int type) -> Result<std::vector<SourceTarget>> {
    std::vector<uint8_t> answer(kMaxMessageBytes);
    const int length = res_nsearch(resolver->get(), name.c_str(), ns_c_in, type, answer.data(),
                                   static_cast<int>(answer.size()));
    if (length < 0) {
      const int error = (*resolver)->res_h_errno;
      if (error == HOST_NOT_FOUND || error == NO_DATA) return std::vector<SourceTarget>();
      return Failed(name + ": no name server gave an answer");
    }
    const size_t bytes = std::min(static_cast<size_t>(length), answer.size());
    auto targets = TargetsOf(std::span<const uint8_t>(answer).first(bytes), type);
    return targets.ok() ? std::move(targets) : Failed(name + ": " + targets.status().message());
  };
  if (name.starts_with('_')) return look(ns_t_srv);
  auto targets = look(ns_t_a);
  return targets.ok() && targets->empty() ? look(ns_t_aaaa) : targets;
}

}  // namespace kvcast::router
