// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/source_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "router/service/ingest/event_feeds.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

// How the text of a command-line flag is converted to the member's JSON.
enum class Shape : uint8_t { kText, kInteger, kBool, kTexts, kIntegers, kGroups, kPairs };

constexpr size_t kMaxLoraPaths = 4096;

struct Member {
  const char* name;
  Shape shape;
  Status (*read)(const Json&, const std::string& name, RouterSource&);
};

using S = RouterSource&;
using N = const std::string&;

constexpr std::pair<const char*, EventFormat> kFormats[] = {{"engine", EventFormat::kEngine},
                                                            {"mooncake", EventFormat::kMooncake},
                                                            {"trtllm", EventFormat::kTrtllm}};
constexpr int64_t kMaxDataParallelSize = 1024;
constexpr int64_t kMaxPollMs = 60'000;

SparseRule& RuleOf(RouterSource& source) {
  auto& rule = source.worker.sparse_rule;
  return rule ? *rule : rule.emplace();
}

Status ReadAlgorithm(const Json& json, N name, S source) {
  std::string text;
  if (Status status = ReadText(json, name, text); !status.ok()) return status;
  source.algorithm = ParseHashAlgorithm(text);
  return source.algorithm ? Status() : BadField(name + ": unknown algorithm '" + text + "'");
}

Status ReadHex(const Json& json, N name, std::vector<uint8_t>& out) {
  const auto bytes =
      json.is_string() ? BytesFromHex(json.get_ref<const std::string&>()) : std::nullopt;
  if (!bytes) return BadField(name + ": not hex digits");
  out = *bytes;
  return Status();
}

Status ReadCandidateNoneHashes(const Json& json, N name, S source) {
  if (!json.is_array()) return BadField(name + ": must be an array");
  for (const Json& item : json) {
    Status status = ReadHex(item, name, source.candidate_none_hashes.emplace_back());
    if (!status.ok()) return status;
  }
  return Status();
}

Status ReadFormat(const Json& json, N name, S source) {
  for (const auto& [known, format] : kFormats) {
    if (json != known) continue;
    source.format = format;
    return Status();
  }
  return BadField(name + R"(: must be one of "engine", "mooncake", "trtllm")");
}

Status ReadRanksOn(const Json& json, N name, S source) {
  if (json != "ports" && json != "tag") return BadField(name + ": must be \"ports\" or \"tag\"");
  source.rank_by_tag = json == "tag";
  return Status();
}

Status ReadUpTo(const Json& json, N name, int64_t max, int64_t& out) {
  int64_t number = 0;
  if (Status status = ReadInteger(json, name, 1, number); !status.ok()) return status;
  if (number > max) return BadField(name + ": must be at most " + std::to_string(max));
  out = number;
  return Status();
}

Status ReadLoadRate(const Json& json, N name, int64_t& out) {
  int64_t rate = 0;
  if (Status status = ReadInteger(json, name, 1, rate); !status.ok()) return status;
  const auto as_measured = static_cast<double>(rate);
  if (as_measured < LoadRate::kMinRate || as_measured > LoadRate::kMaxRate) {
    return BadField(name + ": must be from 100000 to 10000000000000 bytes per second");
  }
  out = rate;
  return Status();
}

Status ReadKvBytesPerToken(const Json& json, N name, S source) {
  return ReadUpTo(json, name, kMaxKvBytesPerToken, source.load_rates.kv_bytes_per_token);
}
Status ReadPrefillRate(const Json& json, N name, S source) {
  return ReadUpTo(json, name, kMaxPrefillTokensPerS, source.load_rates.prefill_tokens_per_s);
}
Status ReadCpuLoadRate(const Json& json, N name, S source) {
  return ReadLoadRate(json, name, source.load_rates.cpu_bytes_per_s);
}
Status ReadStorageLoadRate(const Json& json, N name, S source) {
  return ReadLoadRate(json, name, source.load_rates.storage_bytes_per_s);
}

Status ReadSparseRetention(const Json& json, N name, S source) {
  return ReadInteger(json, name, 0, RuleOf(source).retention_interval.emplace());
}

Status ReadWindowSizes(const Json& json, N name, S source) {
  if (!json.is_array() || std::ssize(json) > kMaxGroups) {
    return BadField(name + ": must be an array of at most " + std::to_string(kMaxGroups));
  }
  for (const Json& item : json) {
    int64_t& window = source.trtllm.window_sizes.emplace_back();
    if (Status status = ReadInteger(item, name, 1, window); !status.ok()) return status;
  }
  return Status();
}

Status ReadLargestIsWindow(const Json& json, N name, S source) {
  return ReadBool(json, name, source.trtllm.largest_is_window);
}
Status ReadTokensPerBlock(const Json& json, N name, S source) {
  return ReadInteger(json, name, 1, source.trtllm.tokens_per_block);
}
Status ReadPartialReuse(const Json& json, N name, S source) {
  return ReadBool(json, name, source.trtllm.partial_reuse);
}
Status ReadPollMs(const Json& json, N name, S source) {
  return ReadUpTo(json, name, kMaxPollMs, source.poll_ms);
}
constexpr std::pair<OffloadRule, const char*> kOffloadRules[] = {
    {OffloadRule::kConnector, "connector"},
    {OffloadRule::kOffloadScheduler, "offload_scheduler"},
    {OffloadRule::kMirroredPool, "mirrored_pool"},
};

Status ReadOffloadRule(const Json& json, N name, S source) {
  for (const auto& [rule, text] : kOffloadRules) {
    if (json != text) continue;
    source.worker.offload_rule = rule;
    return Status();
  }
  return BadField(name +
                  ": must be one of \"connector\", \"offload_scheduler\", \"mirrored_pool\"");
}

Status ReadReportsHits(const Json& json, N name, S source) {
  bool reports = false;
  if (Status status = ReadBool(json, name, reports); !status.ok()) return status;
  source.worker.hit_reports = reports ? HitReports::kExpected : HitReports::kNever;
  return Status();
}

Status ReadRules(const Json& json, N name, EngineRules& rules) {
  const auto known =
      json.is_string() ? ParseEngineRules(json.get_ref<const std::string&>()) : std::nullopt;
  if (!known) return BadField(name + ": must be one of " + EngineRulesNames());
  rules = *known;
  return Status();
}

Status ReadLoraPaths(const Json& json, N name, S source) {
  if (!json.is_object() || json.size() > kMaxLoraPaths) {
    return BadField(name + ": must be an object of at most " + std::to_string(kMaxLoraPaths) +
                    " members");
  }
  for (const auto& [adapter, path] : json.items()) {
    Status status =
        ReadText(path, name + "." + adapter.substr(0, kMaxTextBytes), source.lora_paths[adapter]);
    if (!status.ok()) return status;
  }
  return Status();
}

Status ReadInstance(const Json& json, N name, S source) {
  if (const auto number = Int64Of(json)) {
    source.instance = std::to_string(*number);
    source.instance_is_number = true;
    return Status();
  }
  return ReadText(json, name, source.instance);
}

Status ReadGroup(const Json& json, N at, GroupSpec& group) {
  if (!json.is_object() || !json.contains("kind") || !json.contains("block_size")) {
    return BadField(at + ": must be an object with kind and block_size");
  }
  for (const auto& [name, value] : json.items()) {
    const std::string member = at + "." + name;
    Status status;
    if (name == "kind") {
      std::string kind;
      status = ReadText(value, member, kind);
      group.kind = ParseSpecKind(kind);
      if (status.ok() && group.kind == SpecKind::kUnknown) {
        status = BadField(member + ": unknown kind '" + kind + "'");
      }
    } else if (name == "block_size") {
      status = ReadInteger(value, member, 1, group.block_size);
    } else if (name == "sliding_window") {
      status = ReadInteger(value, member, 1, group.sliding_window);
    } else if (name == "chunk_size") {
      status = ReadInteger(value, member, 1, group.chunk_size);
    } else if (name == "eagle") {
      status = ReadBool(value, member, group.eagle);
    } else if (name == "prefix_cacheable") {
      status = ReadBool(value, member, group.prefix_cacheable);
    } else {
      status = BadField("unknown member: " + member.substr(0, kMaxTextBytes));
    }
    if (!status.ok()) return status;
  }
  if (group.kind == SpecKind::kMamba) group.mamba_mode = MambaMode::kAlign;
  return Status();
}

Status ReadGroups(const Json& json, N name, S source) {
  if (!json.is_array() || std::ssize(json) > kMaxGroups) {
    return BadField(name + ": must be an array of at most " + std::to_string(kMaxGroups));
  }
  for (const Json& item : json) {
    const std::string at = name + "[" + std::to_string(source.worker.groups.size()) + "]";
    Status status = ReadGroup(item, at, source.worker.groups.emplace_back());
    if (!status.ok()) return status;
  }
  return Status();
}

constexpr Member kMembers[] = {
    {"name", Shape::kText, [](auto& j, N n, S s) { return ReadText(j, n, s.worker.name); }},
    {"endpoint", Shape::kText, [](auto& j, N n, S s) { return ReadText(j, n, s.endpoint); }},
    {"replay_endpoint", Shape::kText,
     [](auto& j, N n, S s) { return ReadText(j, n, s.replay_endpoint); }},
    {"topic", Shape::kText, [](auto& j, N n, S s) { return ReadText(j, n, s.topic); }},
    {"bind", Shape::kBool, [](auto& j, N n, S s) { return ReadBool(j, n, s.bind); }},
    {"model", Shape::kText, [](auto& j, N n, S s) { return ReadText(j, n, s.model); }},
    {"instance_id", Shape::kText, ReadInstance},
    {"routing_group", Shape::kText,
     [](auto& j, N n, S s) { return ReadText(j, n, s.routing_group); }},
    {"data_parallel_rank", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 0, s.data_parallel_rank); }},
    {"data_parallel_size", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadUpTo(j, n, kMaxDataParallelSize, s.data_parallel_size); }},
    {"ranks_on", Shape::kText, ReadRanksOn},
    {"format", Shape::kText, ReadFormat},
    {"window_sizes", Shape::kIntegers, ReadWindowSizes},
    {"largest_is_window", Shape::kBool, ReadLargestIsWindow},
    {"tokens_per_block", Shape::kInteger, ReadTokensPerBlock},
    {"partial_reuse", Shape::kBool, ReadPartialReuse},
    {"poll_ms", Shape::kInteger, ReadPollMs},
    {"tenant_id", Shape::kText,
     [](auto& j, N n, S s) { return ReadText(j, n, s.mooncake.tenant_id); }},
    {"backend_id", Shape::kText,
     [](auto& j, N n, S s) { return ReadText(j, n, s.mooncake.backend_id); }},
    {"hash_algorithm", Shape::kText, ReadAlgorithm},
    {"hash_seed", Shape::kText,
     [](auto& j, N n, S s) { return ReadText(j, n, s.hash_seed.emplace()); }},
    {"none_hash", Shape::kText, [](auto& j, N n, S s) { return ReadHex(j, n, s.none_hash); }},
    {"candidate_seeds", Shape::kTexts,
     [](auto& j, N n, S s) { return ReadTexts(j, n, s.candidate_seeds); }},
    {"candidate_none_hashes", Shape::kTexts, ReadCandidateNoneHashes},
    {"groups", Shape::kGroups, ReadGroups},
    {"hash_block_size", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 0, s.worker.hash_block_size); }},
    {"gpu_blocks", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 0, s.gpu_blocks); }},
    {"alignment", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 0, s.worker.alignment); }},
    {"blocks_per_chunk", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 1, s.worker.blocks_per_chunk); }},
    {"offload_rule", Shape::kText, ReadOffloadRule},
    {"reports_hits", Shape::kBool, ReadReportsHits},
    {"sparse_alignment", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 1, RuleOf(s).alignment); }},
    {"sparse_retention", Shape::kInteger, ReadSparseRetention},
    {"sparse_rules", Shape::kText,
     [](auto& j, N n, S s) { return ReadRules(j, n, RuleOf(s).rules); }},
    {"release", Shape::kText,
     [](auto& j, N n, S s) { return ReadRules(j, n, s.worker.rules.emplace()); }},
    {"eagle", Shape::kBool,
     [](auto& j, N n, S s) { return ReadBool(j, n, s.worker.eagle.emplace()); }},
    {"chunk_size", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 1, s.worker.chunk_size); }},
    {"lookahead", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 0, s.worker.hash_lookahead_tokens); }},
    {"replay_tokens", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 0, s.worker.replay_tokens.emplace()); }},
    {"lora_paths", Shape::kPairs, ReadLoraPaths},
    {"kv_bytes_per_token", Shape::kInteger, ReadKvBytesPerToken},
    {"prefill_tokens_per_s", Shape::kInteger, ReadPrefillRate},
    {"cpu_load_bytes_per_s", Shape::kInteger, ReadCpuLoadRate},
    {"storage_load_bytes_per_s", Shape::kInteger, ReadStorageLoadRate},
    {"zero_parent_is_root", Shape::kBool,
     [](auto& j, N n, S s) { return ReadBool(j, n, s.worker.zero_parent_is_root); }},
    {"repeats_are_refreshes", Shape::kBool,
     [](auto& j, N n, S s) { return ReadBool(j, n, s.worker.repeats_are_refreshes); }},
};

const Member* FindMember(std::string_view name) {
  const auto it = std::find_if(std::begin(kMembers), std::end(kMembers),
                               [name](const Member& member) { return name == member.name; });
  return it == std::end(kMembers) ? nullptr : it;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    c == separator ? (void)parts.emplace_back() : parts.back().push_back(c);
  }
  return parts;
}

// If the text is not a number, the function returns the text, and the reader refuses it by name.
Json NumberOf(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && !text.empty() ? Json(number) : Json(text);
}

// KIND:BLOCK_SIZE[:WINDOW or CHUNK][:eagle]
Json GroupFromText(const std::string& text) {
  std::vector<std::string> parts = Split(text, ':');
  Json group = {{"kind", parts[0]}};
  if (parts.back() == "eagle") {
    group["eagle"] = true;
    parts.pop_back();
  }
  if (parts.size() > 1) group["block_size"] = NumberOf(parts[1]);
  if (parts.size() > 3) group[parts[3]] = true;  // the reader refuses an unknown name
  if (parts.size() > 2) {
    const bool chunked = ParseSpecKind(parts[0]) == SpecKind::kChunkedLocalAttention;
    group[chunked ? "chunk_size" : "sliding_window"] = NumberOf(parts[2]);
  }
  return group;
}

Json ValueFromText(Shape shape, const std::string& text) {
  if (shape == Shape::kInteger) return NumberOf(text);
  if (shape == Shape::kBool)
    return text == "true" || text == "false" ? Json(text == "true") : Json(text);
  if (shape == Shape::kText) return text;
  if (shape == Shape::kPairs) {
    Json pairs = Json::object();
    for (const std::string& part : Split(text, '+')) {
      const size_t colon = std::min(part.find(':'), part.size());
      pairs[part.substr(0, colon)] = part.substr(std::min(colon + 1, part.size()));
    }
    return pairs;
  }
  Json list = Json::array();
  for (const std::string& part : Split(text, '+')) {
    list.push_back(shape == Shape::kGroups     ? GroupFromText(part)
                   : shape == Shape::kIntegers ? NumberOf(part)
                                               : Json(part));
  }
  return list;
}

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
  for (const auto& [name, known] : kFormats) {
    if (known == format) return name;
  }
  return "";
}

// Refuses members that the source's format does not use.
Status CheckFormat(const RouterSource& source) {
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

void PutTrtllm(const RouterSource& source, Json& object) {
  const TrtllmConfig& config = source.trtllm;
  object["window_sizes"] = config.window_sizes;
  object["tokens_per_block"] = config.tokens_per_block;
  PutIf(config.largest_is_window, object, "largest_is_window", true);
  PutIf(!config.partial_reuse, object, "partial_reuse", false);
  PutIf(source.poll_ms != RouterSource().poll_ms, object, "poll_ms", source.poll_ms);
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

}  // namespace

Result<RouterSource> SourceFromJson(const Json& object) {
  if (!object.is_object()) return BadField("source: must be an object");
  RouterSource source;
  for (const auto& [name, value] : object.items()) {
    const Member* const member = FindMember(name);
    if (member == nullptr) return BadField("unknown member: " + name.substr(0, kMaxTextBytes));
    if (Status status = member->read(value, name, source); !status.ok()) return status;
  }
  if (source.worker.name.empty()) return BadField("name: required");
  if (source.endpoint.empty()) return BadField("endpoint: required");
  const auto& rule = source.worker.sparse_rule;
  if (rule && rule->alignment == 0)
    return BadField("sparse_alignment: required by the sparse rule");
  if (Status status = CheckFormat(source); !status.ok()) return status;
  return source;
}

Result<RouterSource> SourceFromFlag(const std::string& text) {
  constexpr char kForm[] = "expected NAME=ENDPOINT[,REPLAY_ENDPOINT][,MEMBER=VALUE...]";
  const std::vector<std::string> parts = Split(text, ',');
  Json object;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    if (i == 1 && equals == std::string::npos) {
      object["replay_endpoint"] = parts[i];
      continue;
    }
    if (equals == std::string::npos || equals == 0 || (i == 0 && equals + 1 == parts[i].size())) {
      return BadField(std::string(kForm) + ", got '" + text + "'");
    }
    const std::string name = parts[i].substr(0, equals);
    const std::string value = parts[i].substr(equals + 1);
    if (i == 0) {
      object = {{"name", name}, {"endpoint", value}};
      continue;
    }
    const Member* const member = FindMember(name);
    object[name] = member == nullptr ? Json(value) : ValueFromText(member->shape, value);
  }
  return SourceFromJson(object);
}

Json SourceToJson(const RouterSource& source) {
  const WorkerConfig& worker = source.worker;
  Json object = {{"name", worker.name},
                 {"endpoint", source.endpoint},
                 {"routing_group", source.routing_group},
                 {"data_parallel_rank", source.data_parallel_rank},
                 {"format", NameOf(source.format)}};
  PutIf(!source.replay_endpoint.empty(), object, "replay_endpoint", source.replay_endpoint);
  PutIf(!source.topic.empty(), object, "topic", source.topic);
  PutIf(source.bind, object, "bind", true);
  PutIf(!source.model.empty(), object, "model", source.model);
  PutIf(!source.instance.empty(), object, "instance_id", source.instance);
  PutIf(source.data_parallel_size > 1, object, "data_parallel_size", source.data_parallel_size);
  PutIf(source.rank_by_tag, object, "ranks_on", "tag");
  if (source.format == EventFormat::kTrtllm) PutTrtllm(source, object);
  if (source.format == EventFormat::kMooncake) object["tenant_id"] = source.mooncake.tenant_id;
  PutIf(!source.mooncake.backend_id.empty(), object, "backend_id", source.mooncake.backend_id);
  if (source.algorithm) object["hash_algorithm"] = HashAlgorithmName(*source.algorithm);
  if (source.hash_seed) object["hash_seed"] = *source.hash_seed;
  PutIf(!source.none_hash.empty(), object, "none_hash", HexOf(source.none_hash));
  PutIf(!source.candidate_seeds.empty(), object, "candidate_seeds", source.candidate_seeds);
  for (const auto& bytes : source.candidate_none_hashes) {
    object["candidate_none_hashes"].push_back(HexOf(bytes));
  }
  PutIf(!worker.groups.empty(), object, "groups", GroupsToJson(worker.groups));
  PutIf(worker.hash_block_size > 0, object, "hash_block_size", worker.hash_block_size);
  PutIf(source.gpu_blocks > 0, object, "gpu_blocks", source.gpu_blocks);
  PutIf(worker.alignment > 0, object, "alignment", worker.alignment);
  PutIf(worker.blocks_per_chunk > 1, object, "blocks_per_chunk", worker.blocks_per_chunk);
  for (const auto& [rule, text] : kOffloadRules) {
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

}  // namespace kvcast::router
