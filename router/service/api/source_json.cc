// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/source_json.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <utility>

#include "router/service/api/source_members.h"
#include "router/service/ingest/event_feeds.h"
#include "router/service/json/json_fields.h"
#include "src/event_log/open_log.h"

namespace kvcast::router {
namespace {

void PutIf(bool given, Json& object, const char* name, Json value) {
  if (given) object[name] = std::move(value);
}

std::string HexOf(const std::vector<uint8_t>& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

Json GroupsToJson(const std::vector<GroupSpec>& groups) {
  Json list = Json::array();
  for (const GroupSpec& group : groups) {
    Json object = {{"kind", SpecKindName(group.kind)}, {"block_size", group.block_size}};
    PutIf(group.sliding_window > 0, object, "sliding_window", group.sliding_window);
    PutIf(group.chunk_size > 0, object, "chunk_size", group.chunk_size);
    PutIf(group.eagle, object, "eagle", true);
    PutIf(!group.prefix_cacheable, object, "prefix_cacheable", false);
    list.push_back(std::move(object));
  }
  return list;
}

const char* NameOf(EventFormat format) {
  for (const auto& [known, name] : kEventFormatNames) {
    if (known == format) return name;
  }
  return "";
}

void PutTrtllm(const WorkerRegistration& source, Json& object) {
  const TrtllmConfig& config = source.trtllm;
  object["window_sizes"] = config.window_sizes;
  object["tokens_per_block"] = config.tokens_per_block;
  PutIf(config.largest_is_window, object, "largest_is_window", true);
  PutIf(!config.partial_reuse, object, "partial_reuse", false);
  PutIf(source.poll_ms != WorkerRegistration().poll_ms, object, "poll_ms", source.poll_ms);
}

void PutLoadRates(const LoadRateConfig& config, Json& object) {
  const std::pair<const char*, int64_t> members[] = {
      {"kv_bytes_per_token", config.kv_bytes_per_token},
      {"prefill_tokens_per_s", config.prefill_tokens_per_s},
      {"cpu_load_bytes_per_s", config.cpu_bytes_per_s},
      {"storage_load_bytes_per_s", config.storage_bytes_per_s}};
  for (const auto& [name, value] : members) PutIf(value > 0, object, name, value);
}

void PutStoreRules(const WorkerConfig& config, Json& object) {
  PutIf(config.zero_parent_is_root, object, "zero_parent_is_root", true);
  PutIf(config.repeats_are_refreshes, object, "repeats_are_refreshes", true);
  if (!config.sparse_rule) return;
  object["sparse_alignment"] = config.sparse_rule->alignment;
  if (config.sparse_rule->retention_interval) {
    object["sparse_retention"] = *config.sparse_rule->retention_interval;
  }
  object["sparse_rules"] = EngineRulesName(config.sparse_rule->rules);
}

void PutScheme(const WorkerRegistration& source, Json& object) {
  if (source.algorithm) object["hash_algorithm"] = HashAlgorithmName(*source.algorithm);
  if (source.hash_seed) object["hash_seed"] = *source.hash_seed;
  PutIf(!source.none_hash.empty(), object, "none_hash", HexOf(source.none_hash));
  PutIf(!source.candidate_seeds.empty(), object, "candidate_seeds", source.candidate_seeds);
  for (const auto& bytes : source.candidate_none_hashes) {
    object["candidate_none_hashes"].push_back(HexOf(bytes));
  }
}

}  // namespace

// libzmq accepts any port number. A source with a port out of range would never connect.
static Status CheckPort(const char* member, const std::string& endpoint) {
  if (!endpoint.starts_with("tcp://")) return Status();
  const std::string digits = endpoint.substr(endpoint.rfind(':') + 1);
  int port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, port);
  if (error == std::errc() && stop == end && port >= 1 && port <= 65535) return Status();
  return BadField(std::string(member) + ": must end with a port from 1 to 65535");
}

// A log has the stream of one worker. The router connects to the reader of the log, so the source
// must not describe a connection.
static Status CheckLog(const WorkerRegistration& source) {
  if (!IsLogEndpoint(source.endpoint)) return Status();
  if (source.format != EventFormat::kEngine)
    return BadField("endpoint: a nats: endpoint requires format \"engine\"");
  const bool alone = source.replay_endpoint.empty() && source.topic.empty() &&
                     source.server_key.empty() && !source.bind && !source.rank_by_tag;
  if (alone) return Status();
  return BadField(
      "endpoint: a nats: endpoint allows no replay_endpoint, topic, server_key, bind or ranks_on");
}

Status CheckFormat(const WorkerRegistration& source) {
  if (Status log = CheckLog(source); !log.ok()) return log;
  if (source.endpoint.starts_with("https://")) {
    return BadField("endpoint: must not be https://, because the router polls without TLS");
  }
  Status ports = CheckPort("endpoint", source.endpoint);
  if (ports.ok()) ports = CheckPort("replay_endpoint", source.replay_endpoint);
  if (!ports.ok()) return ports;
  if (source.format == EventFormat::kTrtllm) {
    if (!source.worker.groups.empty()) return BadField("groups: not allowed with format trtllm");
    const Status made = TrtllmEvents::Create(source.trtllm).status();
    return made.ok() ? made : BadField(made.message());
  }
  const bool of_trtllm = !source.trtllm.window_sizes.empty() || source.trtllm.tokens_per_block > 0;
  if (of_trtllm) return BadField("window_sizes, tokens_per_block: allowed only with format trtllm");
  if (IsFeedEndpoint(source.endpoint)) {
    return BadField("endpoint: " + source.endpoint + " needs format trtllm");
  }
  return Status();
}

Result<WorkerRegistration> SourceFromJson(const Json& object) {
  if (!object.is_object()) return BadField("source: must be an object");
  WorkerRegistration source;
  for (const auto& [name, value] : object.items()) {
    const SourceMember* const member = FindSourceMember(name);
    if (member == nullptr) return BadField("unknown member: " + name.substr(0, kMaxTextBytes));
    if (Status status = member->read(value, name, source); !status.ok()) return status;
  }
  if (source.worker.name.empty()) return BadField("name: required");
  if (source.endpoint.empty()) return BadField("endpoint: required");
  // An inproc endpoint needs a publisher in the router's own process. Only a program that uses the
  // library can have such a publisher.
  const auto is_inproc = [](const std::string& endpoint) {
    return endpoint.starts_with("inproc:");
  };
  if (is_inproc(source.endpoint)) return BadField("endpoint: inproc endpoints are not allowed");
  if (is_inproc(source.replay_endpoint))
    return BadField("replay_endpoint: inproc endpoints are not allowed");
  const auto& rule = source.worker.sparse_rule;
  if (rule && rule->alignment == 0)
    return BadField("sparse_alignment: required with sparse_retention or sparse_rules");
  if (Status status = CheckFormat(source); !status.ok()) return status;
  return source;
}

Result<std::vector<WorkerRegistration>> SourcesFromJson(const Json& array,
                                                        const std::string& name) {
  if (!array.is_array()) return BadField(name + ": must be an array");
  std::vector<WorkerRegistration> sources;
  for (size_t i = 0; i < array.size(); ++i) {
    auto source = SourceFromJson(array[i]);
    if (!source.ok()) return BadField(ElementName(name, i) + ": " + source.status().message());
    sources.push_back(std::move(source).value());
  }
  return sources;
}

Result<std::vector<WorkerRegistration>> SourcesFromText(std::string_view text) {
  constexpr int kDepth = 6;
  const auto json = ParseObject(text, kDepth);
  if (!json.ok()) {
    return BadField(json.status().message() == "body: not JSON" ? "not JSON" : "must be an object");
  }
  for (const auto& [name, value] : json->items()) {
    if (name != "sources") return BadField("unknown member: " + name.substr(0, kMaxTextBytes));
  }
  if (!json->contains("sources")) return BadField("sources: required");
  return SourcesFromJson((*json)["sources"], "sources");
}

// The characters of names in Kubernetes. An empty text is allowed.
static bool IsLabel(const std::string& text) {
  return std::ranges::all_of(text, [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '.';
  });
}

// The template of a list of targets.
static Result<SourceTemplate> TemplateFromJson(const Json& source) {
  if (!source.is_object()) return BadField("source: must be an object");
  const SourceTemplate source_of = [source](const SourceTarget& target) {
    Json filled = source;
    for (const auto& [member, in_endpoint] : {std::pair("name", false),
                                              {"instance_id", false},
                                              {"endpoint", true},
                                              {"replay_endpoint", true}}) {
      if (!filled.contains(member) || !filled[member].is_string()) continue;
      filled[member] = FillIn(filled[member].get<std::string>(), target, in_endpoint);
    }
    return SourceFromJson(filled);
  };
  // Reports the errors of the template before the first target is known.
  const SourceTarget example{"192.0.2.1", 1};
  const SourceTarget other{"192.0.2.2", 1};
  const auto first = source_of(example);
  if (!first.ok()) return BadField("source: " + first.status().message());
  if (first->worker.name == source_of(other)->worker.name) {
    return BadField("source: name: must contain {host}, because names are unique");
  }
  return source_of;
}

// Reads the texts, and returns the member `source`. Refuses other members.
static Result<Json> ReadList(const Json& object, const std::map<std::string, std::string*>& texts) {
  if (!object.is_object()) return BadField("must be an object");
  Json source;
  for (const auto& [name, value] : object.items()) {
    if (const auto text = texts.find(name); text != texts.end()) {
      if (Status status = ReadText(value, name, *text->second); !status.ok()) return status;
    } else if (name == "source") {
      source = value;
    } else {
      return BadField("unknown member: " + name.substr(0, kMaxTextBytes));
    }
  }
  return source;
}

Result<DnsSource> DnsSourceFromJson(const Json& object) {
  DnsSource dns;
  const auto source = ReadList(object, {{"lookup", &dns.lookup}});
  if (!source.ok()) return source.status();
  if (dns.lookup.empty()) return BadField("lookup: required");
  auto source_of = TemplateFromJson(*source);
  if (!source_of.ok()) return source_of.status();
  dns.source_of = std::move(source_of).value();
  return dns;
}

Result<KubernetesSource> KubernetesSourceFromJson(const Json& object) {
  KubernetesSource kubernetes;
  std::string service;
  const auto source = ReadList(object, {{"service", &service},
                                        {"selector", &kubernetes.selector},
                                        {"namespace", &kubernetes.space},
                                        {"port_name", &kubernetes.port_name}});
  if (!source.ok()) return source.status();
  if (service.empty() && kubernetes.selector.empty()) {
    return BadField("service or selector: required");
  }
  if (!IsLabel(service)) return BadField("service: must be the name of a service");
  if (!IsLabel(kubernetes.space)) return BadField("namespace: must be a name");
  if (!service.empty()) {
    const std::string others = kubernetes.selector.empty() ? "" : "," + kubernetes.selector;
    kubernetes.selector = "kubernetes.io/service-name=" + service + others;
  }
  auto source_of = TemplateFromJson(*source);
  if (!source_of.ok()) return source_of.status();
  kubernetes.source_of = std::move(source_of).value();
  return kubernetes;
}

Json SourceToJson(const WorkerRegistration& source) {
  const WorkerConfig& worker = source.worker;
  Json object = {{"name", worker.name},
                 {"endpoint", source.endpoint},
                 {"routing_group", source.routing_group},
                 {"data_parallel_rank", source.data_parallel_rank},
                 {"format", NameOf(source.format)}};
  PutIf(!source.replay_endpoint.empty(), object, "replay_endpoint", source.replay_endpoint);
  PutIf(!source.topic.empty(), object, "topic", source.topic);
  PutIf(source.bind, object, "bind", true);
  PutIf(!source.server_key.empty(), object, "server_key", source.server_key);
  PutIf(source.insecure, object, "insecure", true);
  PutIf(!source.model.empty(), object, "model", source.model);
  if (source.instance_is_number) {
    object["instance_id"] = std::stoll(source.instance);
  } else {
    PutIf(!source.instance.empty(), object, "instance_id", source.instance);
  }
  PutIf(source.data_parallel_size > 1, object, "data_parallel_size", source.data_parallel_size);
  PutIf(source.rank_by_tag, object, "ranks_on", "tag");
  if (source.format == EventFormat::kTrtllm) PutTrtllm(source, object);
  if (source.format == EventFormat::kMooncake) object["tenant_id"] = source.mooncake.tenant_id;
  PutIf(!source.mooncake.backend_id.empty(), object, "backend_id", source.mooncake.backend_id);
  PutScheme(source, object);
  PutIf(!worker.groups.empty(), object, "groups", GroupsToJson(worker.groups));
  PutIf(worker.hash_block_size > 0, object, "hash_block_size", worker.hash_block_size);
  PutIf(source.block_size > 0, object, "block_size", source.block_size);
  PutIf(source.gpu_blocks > 0, object, "gpu_blocks", source.gpu_blocks);
  PutIf(source.max_residencies > 0, object, "max_residencies", source.max_residencies);
  PutIf(worker.alignment > 0, object, "alignment", worker.alignment);
  PutIf(worker.blocks_per_chunk > 1, object, "blocks_per_chunk", worker.blocks_per_chunk);
  for (const auto& [rule, text] : kOffloadRuleNames) {
    PutIf(worker.offload_rule == rule, object, "offload_rule", text);
  }
  PutIf(worker.hit_reports != HitReports::kUnknown, object, "reports_hits",
        worker.hit_reports == HitReports::kExpected);
  PutStoreRules(worker, object);
  PutLoadRates(source.load_rates, object);
  if (worker.rules) object["release"] = EngineRulesName(*worker.rules);
  if (worker.eagle) object["eagle"] = *worker.eagle;
  PutIf(worker.chunk_size > 0, object, "chunk_size", worker.chunk_size);
  PutIf(worker.hash_lookahead_tokens > 0, object, "lookahead", worker.hash_lookahead_tokens);
  if (worker.replay_tokens) object["replay_tokens"] = *worker.replay_tokens;
  PutIf(!source.lora_paths.empty(), object, "lora_paths", source.lora_paths);
  return object;
}

Json ShownSource(const WorkerRegistration& source) {
  WorkerRegistration shown = source;
  shown.none_hash.clear();
  shown.candidate_none_hashes.clear();
  if (shown.hash_seed) shown.hash_seed = ShownHashSeed(*shown.hash_seed);
  for (std::string& seed : shown.candidate_seeds) seed = ShownHashSeed(seed);
  return SourceToJson(shown);
}

}  // namespace kvcast::router
