// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/dns_client.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "kvcast/stream/endpoint.h"
#include "router/service/discovery/dns_tcp.h"
#include "router/service/discovery/read_file.h"

namespace kvcast::router {
namespace {

// The longest answer over UDP that servers may send. Networks forward it without fragmentation.
constexpr uint16_t kMaxUdpAnswerBytes = 1232;
// Masks of the flags in the header of a message.
constexpr int kIsResponse = 0x8000;
constexpr int kIsAuthoritative = 0x0400;
constexpr int kIsTruncated = 0x0200;
constexpr int kIsRecursive = 0x0080;
constexpr int kCodeMask = 0x000F;

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
  resolver->options |= RES_IGNTC;  // the queries of the resolver over TCP have no time limit
  if (server.empty()) return resolver;
  auto address = ParseServer(server);
  if (!address.ok()) return address.status();
  resolver->nsaddr_list[0] = *address;
  resolver->nscount = 1;
  return resolver;
}

// The answers of the name servers for one name.
enum class DnsOutcome : uint8_t {
  // In ascending order; see SearchNames.
  kNoName,
  kNoAnswer,
  kServerError,  // a server answered, but no answer can be used
  kNoRecords,    // the name exists
  kRecords,
  kTruncated,  // the answer over UDP is cut; the whole answer comes only over TCP
};

struct DnsReply {
  DnsOutcome outcome = DnsOutcome::kNoName;
  std::vector<uint8_t> message = {};  // kRecords: has the records
  bool over_tcp = false;              // the servers were asked over TCP
};

int FlagsOf(const std::vector<uint8_t>& message) { return ns_get16(message.data() + 2); }

// `message` has at least a header.
DnsOutcome OutcomeOf(const std::vector<uint8_t>& message) {
  const int flags = FlagsOf(message);
  const int code = flags & kCodeMask;
  if (code != ns_r_noerror && code != ns_r_nxdomain) return DnsOutcome::kServerError;
  if ((flags & kIsTruncated) != 0) return DnsOutcome::kTruncated;
  if (code == ns_r_nxdomain) return DnsOutcome::kNoName;
  if (ns_get16(message.data() + 6) != 0) return DnsOutcome::kRecords;
  // Without both flags, the message only refers to other name servers.
  const bool is_final = (flags & (kIsAuthoritative | kIsRecursive)) != 0;
  return is_final ? DnsOutcome::kNoRecords : DnsOutcome::kServerError;
}

// Empty: the name is malformed. `with_size`: the query has the record OPT, with kMaxUdpAnswerBytes.
// Without this record, a server sends at most 512 bytes over UDP.
std::vector<uint8_t> QueryFor(res_state state, const std::string& name, int type, bool with_size) {
  std::vector<uint8_t> query(NS_PACKETSZ);
  const int length = res_nmkquery(state, ns_o_query, name.c_str(), ns_c_in, type, nullptr, 0,
                                  nullptr, query.data(), static_cast<int>(query.size()));
  query.resize(static_cast<size_t>(std::max(length, 0)));
  if (query.empty() || !with_size) return query;
  query[11] = 1;  // number of additional records
  query.insert(query.end(), {0, 0, ns_t_opt, kMaxUdpAnswerBytes >> 8, kMaxUdpAnswerBytes & 0xFF, 0,
                             0, 0, 0, 0, 0});
  return query;
}

DnsReply AskOverUdp(res_state state, const std::vector<uint8_t>& query) {
  DnsReply reply = {DnsOutcome::kNoAnswer, std::vector<uint8_t>(kMaxDnsMessageBytes)};
  const int length = res_nsend(state, query.data(), static_cast<int>(query.size()),
                               reply.message.data(), static_cast<int>(reply.message.size()));
  if (length >= NS_HFIXEDSZ) {
    reply.message.resize(static_cast<size_t>(length));
    reply.outcome = OutcomeOf(reply.message);
  } else if ((FlagsOf(reply.message) & kIsResponse) != 0) {
    // The resolver leaves an answer that it cannot use in the buffer.
    reply.outcome = DnsOutcome::kServerError;
  }
  return reply;
}

sockaddr_storage NameServerOf(const struct __res_state& state, int number) {
  sockaddr_storage server = {};
  const sockaddr_in& v4 = state.nsaddr_list[number];
  // The C library keeps the addresses of IPv6 servers here.
  const sockaddr_in6* const v6 = state._u._ext.nsaddrs[number];
  if (v4.sin_family == 0 && v6 != nullptr) {
    std::memcpy(&server, v6, sizeof(*v6));
  } else {
    std::memcpy(&server, &v4, sizeof(v4));
  }
  return server;
}

// Asks one server after the other, until an answer can be used.
DnsReply AskServersOverTcp(const struct __res_state& state, const std::vector<uint8_t>& query) {
  DnsReply reply = {DnsOutcome::kNoAnswer, {}, true};
  for (int i = 0; i < state.nscount; ++i) {
    auto answer = AskOverTcp(NameServerOf(state, i), query, DnsClient::kTimeoutSeconds * 1000);
    if (!answer) continue;
    reply.outcome = OutcomeOf(*answer);
    if (reply.outcome == DnsOutcome::kTruncated) reply.outcome = DnsOutcome::kServerError;
    reply.message = *std::move(answer);
    if (reply.outcome != DnsOutcome::kServerError) break;
  }
  return reply;
}

DnsReply AskFor(res_state state, const std::string& name, int type) {
  std::vector<uint8_t> query = QueryFor(state, name, type, true);
  if (query.empty()) return {DnsOutcome::kServerError};
  if ((state->options & RES_USEVC) == 0) {
    DnsReply reply = AskOverUdp(state, query);
    const int code = FlagsOf(reply.message) & kCodeMask;
    if (code == ns_r_formerr || code == ns_r_notimpl || code == ns_r_servfail) {
      // Servers that do not know the record OPT answer with one of these codes.
      query = QueryFor(state, name, type, false);
      DnsReply without_size = AskOverUdp(state, query);
      if (without_size.outcome != DnsOutcome::kNoAnswer) reply = std::move(without_size);
    }
    if (reply.outcome != DnsOutcome::kTruncated) return reply;
  }
  return AskServersOverTcp(*state, query);
}

// The C library keeps at most 6 search domains, with at most 255 bytes in total. The others are
// read from /etc/resolv.conf. If LOCALDOMAIN is set, its domains replace those of the file.
std::vector<std::string> SearchDomains(const struct __res_state& state) {
  std::vector<std::string> kept;
  for (const char* const* next = state.dnsrch; *next != nullptr; ++next) kept.emplace_back(*next);
  if (std::getenv("LOCALDOMAIN") != nullptr) return kept;
  const auto text = ReadRegularFile("/etc/resolv.conf", /*max_mib=*/1);
  std::vector<std::string> all = text.ok() ? SearchDomainsOf(*text) : std::vector<std::string>();
  return all.size() > kept.size() ? all : kept;
}

// The names to ask for, in the order of resolv.conf(5), each once.
std::vector<std::string> NamesFor(const struct __res_state& state, const std::string& name) {
  if (name.ends_with('.')) return {name};
  std::vector<std::string> names;
  const auto add = [&](std::string full) {
    if (std::ranges::find(names, full) == names.end()) names.push_back(std::move(full));
  };
  if (std::ranges::count(name, '.') >= static_cast<int>(state.ndots)) add(name);
  for (const std::string& given : SearchDomains(state)) {
    const std::string domain = given.substr(given.starts_with('.') ? 1 : 0);
    add(domain.empty() ? name : name + "." + domain);
  }
  add(name);
  return names;
}

// Asks for one name after the other, until a name has records. If no name has records: the answer
// for `name` itself counts if it is the first name. Otherwise the answer with the greatest
// DnsOutcome counts. So if the name exists in one domain, an error in another domain does not
// count.
DnsReply SearchNames(res_state state, const std::string& name, int type) {
  const std::vector<std::string> names = NamesFor(*state, name);
  const bool is_first = names.front() == name;
  DnsReply best;
  for (size_t i = 0; i < names.size(); ++i) {
    DnsReply reply = AskFor(state, names[i], type);
    const DnsOutcome outcome = reply.outcome;
    if (outcome == DnsOutcome::kRecords) return reply;
    if (i == 0 || (!is_first && best.outcome < outcome)) best = std::move(reply);
    // Each further name may also wait until all tries have failed, so only the last name is tried.
    if (outcome == DnsOutcome::kNoAnswer && names[i] != name) i = std::max(i + 2, names.size()) - 2;
  }
  return best;
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

std::vector<std::string> SearchDomainsOf(std::string_view resolv_conf) {
  std::vector<std::string> domains;
  std::istringstream lines{std::string(resolv_conf)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word != "search" && word != "domain") continue;
    domains.assign(std::istream_iterator<std::string>(words), {});
    if (word == "domain") domains.resize(std::min<size_t>(domains.size(), 1));
  }
  return domains;
}

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
    const DnsReply reply = SearchNames(resolver->get(), name, type);
    switch (reply.outcome) {
      case DnsOutcome::kRecords:
        break;
      case DnsOutcome::kNoName:
      case DnsOutcome::kNoRecords:
        return std::vector<SourceTarget>();
      default:
        return Failed(name + ": no name server gave an answer" +
                      (reply.over_tcp ? " over TCP" : ""));
    }
    auto targets = TargetsOf(reply.message, type);
    return targets.ok() ? std::move(targets) : Failed(name + ": " + targets.status().message());
  };
  if (name.starts_with('_')) return look(ns_t_srv);
  auto targets = look(ns_t_a);
  return targets.ok() && targets->empty() ? look(ns_t_aaaa) : targets;
}

}  // namespace kvcast::router
