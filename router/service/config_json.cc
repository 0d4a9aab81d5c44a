// SPDX-License-Identifier: Apache-2.0
#include "router/service/config_json.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "kvcast/router/prefix_index.h"
#include "router/service/api/source_json.h"
#include "router/service/discovery/dns_client.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

constexpr int kConfigDepth = 6;
constexpr double kMaxWeight = 1e9;

using C = RoutingConfig&;

constexpr WeightMember kWeights[] = {
    {"work", [](C c) -> double& { return c.weights.work; }},
    {"later", [](C c) -> double& { return c.weights.later; }},
    {"partial", [](C c) -> double& { return c.weights.partial; }},
    {"eviction", [](C c) -> double& { return c.weights.eviction; }},
    {"cache_share", [](C c) -> double& { return c.weights.cache_share; }},
    {"queued_request", [](C c) -> double& { return c.weights.queued_request; }},
    {"load_token", [](C c) -> double& { return c.weights.load_token; }},
    {"load_storage_token", [](C c) -> double& { return c.weights.load_storage_token; }},
};

Status ReadWeights(const Json& json, const std::string& path, RouterOptions& options) {
  if (!json.is_object()) return BadField(path + ": must be an object");
  for (const auto& [name, value] : json.items()) {
    const auto weight =
        std::find_if(std::begin(kWeights), std::end(kWeights),
                     [&name](const WeightMember& member) { return name == member.name; });
    if (weight == std::end(kWeights)) return BadField(path + ": unknown member: " + name);
    Status status =
        ReadNumber(value, path + "." + name, 0, kMaxWeight, weight->of(options.routing));
    if (!status.ok()) return status;
  }
  return Status();
}

Status ReadSources(const Json& json, const std::string& name, RouterOptions& options) {
  auto sources = SourcesFromJson(json, name);
  if (!sources.ok()) return sources.status();
  for (WorkerRegistration& source : *sources) options.sources.push_back(std::move(source));
  return Status();
}

Status ReadDnsSources(const Json& json, const std::string& name, RouterOptions& options) {
  if (!json.is_array()) return BadField(name + ": must be an array");
  for (size_t i = 0; i < json.size(); ++i) {
    auto source = DnsSourceFromJson(json[i]);
    if (!source.ok()) return BadField(ElementName(name, i) + ": " + source.status().message());
    const bool known = std::ranges::any_of(options.dns_sources, [&](const DnsSource& other) {
      return other.lookup == source->lookup;
    });
    if (known) return BadField(ElementName(name, i) + ": lookup: the name occurs twice");
    options.dns_sources.push_back(std::move(source).value());
  }
  return Status();
}

Status ReadDnsServer(const Json& json, const std::string& name, RouterOptions& options) {
  std::string server;
  Status status = ReadText(json, name, server);
  if (status.ok()) status = DnsClient::Create(server).status();
  if (!status.ok()) return BadField(name + ": " + status.message());
  options.dns_server = std::move(server);
  return Status();
}

Status ReadKubernetesSources(const Json& json, const std::string& name, RouterOptions& options) {
  if (!json.is_array()) return BadField(name + ": must be an array");
  for (size_t i = 0; i < json.size(); ++i) {
    auto source = KubernetesSourceFromJson(json[i]);
    if (!source.ok()) return BadField(ElementName(name, i) + ": " + source.status().message());
    const bool known = std::ranges::any_of(
        options.kubernetes_sources,
        [&](const KubernetesSource& other) { return other.list() == source->list(); });
    if (known)
      return BadField(ElementName(name, i) +
                      ": the same namespace, selector and port_name occur twice");
    options.kubernetes_sources.push_back(std::move(source).value());
  }
  return Status();
}

Status ReadKubernetesApi(const Json& json, const std::string& name, RouterOptions& options) {
  std::string url;
  if (Status status = ReadText(json, name, url); !status.ok()) return status;
  const Status valid = url.empty() ? Status() : CheckApiUrl(url);
  if (!valid.ok()) return BadField(name + ": " + valid.message());
  options.kubernetes.url = std::move(url);
  return Status();
}

Status ReadHttp(const Json& json, const std::string& name, RouterOptions& options) {
  std::string address;
  if (Status status = ReadText(json, name, address); !status.ok()) return status;
  return ParseHttpAddress(address, options.http);
}

// A number that may be 0.
Status ReadCount(const Json& json, const std::string& name, uint64_t& count) {
  int64_t value = 0;
  const Status status = ReadInteger(json, name, 0, value);
  if (status.ok()) count = static_cast<uint64_t>(value);
  return status;
}

Status ReadIngestThreads(const Json& json, const std::string& name, RouterOptions& options) {
  uint64_t threads = 0;
  if (Status status = ReadCount(json, name, threads); !status.ok()) return status;
  if (threads > kMaxIndexShards) {
    return Status(StatusCode::kInvalidArgument,
                  name + ": must be at most " + std::to_string(kMaxIndexShards));
  }
  options.ingest_threads = threads;
  return Status();
}

// An array of texts, which may be empty.
Result<std::vector<std::string>> TextsOf(const Json& json, const std::string& name) {
  std::vector<std::string> texts;
  if (json.is_array() && json.empty()) return texts;
  if (Status status = ReadTexts(json, name, texts); !status.ok()) return status;
  return texts;
}

using ReadTextsOf = Status (*)(const std::vector<std::string>&, const std::string&, RouterOptions&);

template <ReadTextsOf kRead>
Status ReadList(const Json& json, const std::string& name, RouterOptions& options) {
  const auto texts = TextsOf(json, name);
  return texts.ok() ? kRead(*texts, name, options) : texts.status();
}

Status ReadAdmin(const Json& json, const std::string& name, RouterOptions& options) {
  std::string address;
  if (Status status = ReadText(json, name, address); !status.ok()) return status;
  return ReadAdminListen(address, name, options);
}

Status ReadLimit(const Json& json, const std::string& name, size_t& limit) {
  auto value = static_cast<int64_t>(limit);
  const Status status = ReadUpTo(json, name, kMaxSourcesLimit, value);
  limit = static_cast<size_t>(value);
  return status;
}

Status ReadSourceFiles(const std::vector<std::string>& paths, const std::string&,
                       RouterOptions& options) {
  options.source_files.insert(options.source_files.end(), paths.begin(), paths.end());
  return Status();
}

Status ReadStateInterval(const Json& json, const std::string& name, RouterOptions& options) {
  Status status = ReadUpTo(json, name, kMaxStateInterval, options.state.period_s);
  if (status.ok() && options.state.period_s < 1) return BadField(name + ": must be at least 1");
  return status;
}

Status ReadPeerTimeout(const Json& json, const std::string& name, RouterOptions& options) {
  Status status = ReadUpTo(json, name, kMaxPeerTimeoutMs, options.peer.timeout_ms);
  if (status.ok() && options.peer.timeout_ms < kMinPeerTimeoutMs) {
    return BadField(name + ": must be at least " + std::to_string(kMinPeerTimeoutMs));
  }
  return status;
}

Status ReadLoadPeriod(const Json& json, const std::string& name, RouterOptions& options) {
  Status status = ReadUpTo(json, name, kMaxLoadPeriodMs, options.load.period_ms);
  if (status.ok() && options.load.period_ms < kMinLoadPeriodMs) {
    return BadField(name + ": must be at least " + std::to_string(kMinLoadPeriodMs));
  }
  return status;
}

using N = const std::string&;
using O = RouterOptions&;

constexpr ConfigMember kConfigMembers[] = {
    {"http", ReadHttp},
    {"tls_cert", [](auto& j, N n, O o) { return ReadText(j, n, o.http.tls_certificate); }},
    {"tls_key", [](auto& j, N n, O o) { return ReadText(j, n, o.http.tls_key); }},
    {"token_file", [](auto& j, N n, O o) { return ReadText(j, n, o.http.token_file); }},
    {"admin_listen", ReadAdmin},
    {"allowed_hosts", ReadList<ReadAllowedHosts>},
    {"source_networks", ReadList<ReadSourceNetworks>},
    {"max_sources", [](auto& j, N n, O o) { return ReadLimit(j, n, o.source_limits.workers); }},
    {"max_residencies",
     [](auto& j, N n, O o) { return ReadCount(j, n, o.source_limits.residencies); }},
    {"max_http_sources",
     [](auto& j, N n, O o) { return ReadLimit(j, n, o.source_limits.client_workers); }},
    {"sources", ReadSources},
    {"source_files", ReadList<ReadSourceFiles>},
    {"dns_sources", ReadDnsSources},
    {"dns_server", ReadDnsServer},
    {"kubernetes_sources", ReadKubernetesSources},
    {"kubernetes_api", ReadKubernetesApi},
    {"kubernetes_token_file",
     [](auto& j, N n, O o) { return ReadText(j, n, o.kubernetes.token_file); }},
    {"kubernetes_ca_file", [](auto& j, N n, O o) { return ReadText(j, n, o.kubernetes.ca_file); }},
    {"ingest_threads", ReadIngestThreads},
    {"state", [](auto& j, N n, O o) { return ReadText(j, n, o.state.folder); }},
    {"state_interval_s", ReadStateInterval},
    {"peer", [](auto& j, N n, O o) { return ReadText(j, n, o.peer.url); }},
    {"peer_token_file", [](auto& j, N n, O o) { return ReadText(j, n, o.peer.token_file); }},
    {"peer_ca_file", [](auto& j, N n, O o) { return ReadText(j, n, o.peer.ca_file); }},
    {"peer_timeout_ms", ReadPeerTimeout},
    {"weights", ReadWeights},
    {"temperature",
     [](auto& j, N n, O o) { return ReadNumber(j, n, 0, kMaxTemperature, o.routing.temperature); }},
    {"speculative_ms",
     [](auto& j, N n, O o) { return ReadInteger(j, n, 0, o.routing.speculative.lifetime_ms); }},
    {"booking_lifetime_ms",
     [](auto& j, N n, O o) { return ReadInteger(j, n, 1, o.routing.booking_lifetime_ms); }},
    {"relay", [](auto& j, N n, O o) { return ReadText(j, n, o.relay.endpoint); }},
    {"relay_redact", [](auto& j, N n, O o) { return ReadBool(j, n, o.relay.redact); }},
    {"load_endpoint", [](auto& j, N n, O o) { return ReadText(j, n, o.load.endpoint); }},
    {"load_peers", ReadList<ReadLoadPeers>},
    {"load_period_ms", ReadLoadPeriod},
    {"router_name", [](auto& j, N n, O o) { return ReadText(j, n, o.load.name); }},
    {"curve_key", [](auto& j, N n, O o) { return ReadText(j, n, o.curve_key); }},
    {"curve_clients", [](auto& j, N n, O o) { return ReadText(j, n, o.curve_clients); }},
    {"allow_remote", [](auto& j, N n, O o) { return ReadBool(j, n, o.allow_remote); }},
};

Status ReadMember(const std::string& name, const Json& value, RouterOptions& options) {
  for (const ConfigMember& member : kConfigMembers) {
    if (name == member.name) return member.read(value, name, options);
  }
  return BadField("unknown member: " + name.substr(0, kMaxTextBytes));
}

}  // namespace

std::span<const ConfigMember> ConfigMembers() { return kConfigMembers; }

std::span<const WeightMember> WeightMembers() { return kWeights; }

Status ReadConfig(std::string_view text, RouterOptions& options) {
  const auto json = ParseObject(text, kConfigDepth);
  if (!json.ok()) {
    return BadField(json.status().message() == "body: not JSON" ? "not JSON" : "must be an object");
  }
  for (const auto& [name, value] : json->items()) {
    if (Status status = ReadMember(name, value, options); !status.ok()) return status;
  }
  return Status();
}

Status ParseHttpAddress(const std::string& text, HttpOptions& http) {
  const size_t colon = text.rfind(':');
  int port = -1;
  if (colon != std::string::npos && colon > 0) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || stop != end) port = -1;
  }
  if (port < 0 || port > 65535) return BadField("http: expected ADDR:PORT, got '" + text + "'");
  http.address = text.substr(0, colon);
  http.port = port;
  return Status();
}

Status ReadAdminListen(const std::string& text, const std::string& name, RouterOptions& options) {
  constexpr std::string_view kUnix = "unix:";
  options.admin_http.reset();
  if (text.empty()) return Status();
  HttpOptions admin;
  if (text.starts_with(kUnix) && text.size() > kUnix.size()) {
    admin.unix_path = text.substr(kUnix.size());
  } else if (text.starts_with(kUnix) || !ParseHttpAddress(text, admin).ok()) {
    return BadField(name + ": expected ADDR:PORT or unix:PATH, got '" + text + "'");
  }
  options.admin_http = std::move(admin);
  return Status();
}

Status ReadAllowedHosts(const std::vector<std::string>& hosts, const std::string& name,
                        RouterOptions& options) {
  for (const std::string& host : hosts) {
    const bool port = host.find(':') != std::string::npos && !host.ends_with(']');
    if (host.empty() || port || host.find('/') != std::string::npos) {
      return BadField(name + ": expected a host name without a port, got '" + host + "'");
    }
  }
  options.http.allowed_hosts = hosts;
  return Status();
}

Status ReadSourceNetworks(const std::vector<std::string>& networks, const std::string& name,
                          RouterOptions& options) {
  options.source_networks.clear();
  for (const std::string& text : networks) {
    const auto network = IpNetwork::Parse(text);
    if (!network) {
      return BadField(name + ": expected a network like 10.0.0.0/8, got '" + text + "'");
    }
    options.source_networks.push_back(*network);
  }
  return Status();
}

Status ReadLoadPeers(const std::vector<std::string>& peers, const std::string& name,
                     RouterOptions& options) {
  options.load.peers.clear();
  for (const std::string& text : peers) {
    auto peer = ParseLoadPeer(text);
    if (!peer.ok()) return BadField(name + ": " + peer.status().message());
    options.load.peers.push_back(std::move(peer).value());
  }
  return Status();
}

}  // namespace kvcast::router
