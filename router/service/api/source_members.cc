// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/source_members.h"

#include <algorithm>
#include <iterator>

namespace kvcast::router {
namespace {

using Shape = MemberShape;
using S = WorkerRegistration&;
using N = const std::string&;

constexpr size_t kMaxLoraPaths = 4096;
constexpr int64_t kMaxDataParallelSize = 1024;
constexpr int64_t kMaxPollMs = 60'000;

// nullptr: no member has this name.
template <typename Member, size_t kSize>
const Member* FindMember(const Member (&members)[kSize], std::string_view name) {
  const auto it = std::find_if(std::begin(members), std::end(members),
                               [name](const Member& member) { return name == member.name; });
  return it == std::end(members) ? nullptr : it;
}

SparseRule& RuleOf(WorkerRegistration& source) {
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
  if (!bytes) return BadField(name + ": must be the hex digits of 1 to 256 bytes");
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
  for (const auto& [format, text] : kEventFormatNames) {
    if (json != text) continue;
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
    return BadField(name + ": must be an array of at most " + std::to_string(kMaxGroups) +
                    " elements");
  }
  for (const Json& item : json) {
    std::vector<int64_t>& windows = source.trtllm.window_sizes;
    const std::string element = ElementName(name, windows.size());
    if (Status status = ReadInteger(item, element, 1, windows.emplace_back()); !status.ok()) {
      return status;
    }
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

Status ReadOffloadRule(const Json& json, N name, S source) {
  for (const auto& [rule, text] : kOffloadRuleNames) {
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

Status ReadKind(const Json& json, N name, GroupSpec& group) {
  std::string kind;
  if (Status status = ReadText(json, name, kind); !status.ok()) return status;
  group.kind = ParseSpecKind(kind);
  return group.kind == SpecKind::kUnknown ? BadField(name + ": unknown kind '" + kind + "'")
                                          : Status();
}

using G = GroupSpec&;

constexpr GroupMember kGroupMembers[] = {
    {"kind", Shape::kText, ReadKind},
    {"block_size", Shape::kInteger,
     [](auto& j, N n, G g) { return ReadInteger(j, n, 1, g.block_size); }},
    {"sliding_window", Shape::kInteger,
     [](auto& j, N n, G g) { return ReadInteger(j, n, 1, g.sliding_window); }},
    {"chunk_size", Shape::kInteger,
     [](auto& j, N n, G g) { return ReadInteger(j, n, 1, g.chunk_size); }},
    {"eagle", Shape::kBool, [](auto& j, N n, G g) { return ReadBool(j, n, g.eagle); }},
    {"prefix_cacheable", Shape::kBool,
     [](auto& j, N n, G g) { return ReadBool(j, n, g.prefix_cacheable); }},
};

Status ReadGroup(const Json& json, N element, GroupSpec& group) {
  if (!json.is_object() || !json.contains("kind") || !json.contains("block_size")) {
    return BadField(element + ": must be an object with kind and block_size");
  }
  for (const auto& [name, value] : json.items()) {
    const std::string path = element + "." + name;
    const GroupMember* const member = FindMember(kGroupMembers, name);
    const Status status = member == nullptr
                              ? BadField("unknown member: " + path.substr(0, kMaxTextBytes))
                              : member->read(value, path, group);
    if (!status.ok()) return status;
  }
  if (group.kind == SpecKind::kMamba) group.mamba_mode = MambaMode::kAlign;
  return Status();
}

Status ReadGroups(const Json& json, N name, S source) {
  if (!json.is_array() || std::ssize(json) > kMaxGroups) {
    return BadField(name + ": must be an array of at most " + std::to_string(kMaxGroups) +
                    " elements");
  }
  for (const Json& item : json) {
    const std::string element = name + "[" + std::to_string(source.worker.groups.size()) + "]";
    Status status = ReadGroup(item, element, source.worker.groups.emplace_back());
    if (!status.ok()) return status;
  }
  return Status();
}

constexpr SourceMember kMembers[] = {
    {"name", Shape::kText, [](auto& j, N n, S s) { return ReadText(j, n, s.worker.name); }},
    {"endpoint", Shape::kText, [](auto& j, N n, S s) { return ReadText(j, n, s.endpoint); }},
    {"replay_endpoint", Shape::kText,
     [](auto& j, N n, S s) { return ReadText(j, n, s.replay_endpoint); }},
    {"topic", Shape::kText, [](auto& j, N n, S s) { return ReadText(j, n, s.topic); }},
    {"bind", Shape::kBool, [](auto& j, N n, S s) { return ReadBool(j, n, s.bind); }},
    {"server_key", Shape::kText, [](auto& j, N n, S s) { return ReadText(j, n, s.server_key); }},
    {"insecure", Shape::kBool, [](auto& j, N n, S s) { return ReadBool(j, n, s.insecure); }},
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
    {"block_size", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 0, s.block_size); }},
    {"gpu_blocks", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 0, s.gpu_blocks); }},
    {"max_residencies", Shape::kInteger,
     [](auto& j, N n, S s) { return ReadInteger(j, n, 0, s.max_residencies); }},
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

}  // namespace

std::span<const SourceMember> SourceMembers() { return kMembers; }

std::span<const GroupMember> GroupMembers() { return kGroupMembers; }

const SourceMember* FindSourceMember(std::string_view name) { return FindMember(kMembers, name); }

}  // namespace kvcast::router
