// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_layout_json.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "apps/support/or_null.h"

namespace kvcast::tools {

using Json = nlohmann::json;

namespace {

MambaMode ParseMode(const std::string& mode) {
  if (mode == "none") return MambaMode::kNone;
  if (mode == "all") return MambaMode::kAll;
  if (mode == "align") return MambaMode::kAlign;
  throw std::runtime_error("unknown Mamba mode " + mode);
}

}  // namespace

GroupSpec ParseOffloadGroup(const Json& value) {
  GroupSpec spec;
  const std::string kind = value.at("kind");
  spec.block_size = value.at("block_size");
  spec.eagle = value.value("eagle", false);
  if (kind == "swa") {
    spec.kind = SpecKind::kSlidingWindow;
    spec.sliding_window = value.at("window");
  } else if (kind == "chunked") {
    spec.kind = SpecKind::kChunkedLocalAttention;
    spec.chunk_size = value.at("chunk");
  } else if (kind == "mamba") {
    spec.kind = SpecKind::kMamba;
    spec.mamba_mode = ParseMode(value.at("mode"));
  } else if (kind == "mla") {
    spec.kind = SpecKind::kMlaAttention;
  } else if (kind != "full") {
    throw std::runtime_error("unknown group kind " + kind);
  }
  return spec;
}

OffloadLayoutConfig ParseLayoutConfig(const Json& record) {
  OffloadLayoutConfig config;
  config.tokens_per_hash = record.at("tokens_per_hash");
  config.blocks_per_chunk = record.at("blocks_per_chunk");
  config.speculative_eagle =
      record.value("speculative_eagle", false) || record.value("use_eagle", false);
  config.decode_context_parallel = record.value("dcp", int64_t{1});
  for (const Json& group : record.at("groups")) {
    GroupSpec spec = ParseOffloadGroup(group);
    if (spec.kind != SpecKind::kMamba) spec.block_size *= config.decode_context_parallel;
    config.groups.push_back(spec);
  }
  return config;
}

Json GroupsJson(const OffloadLayout& layout) {
  Json groups = Json::array();
  for (const OffloadGroup& group : layout.groups) {
    groups.push_back({{"tokens_per_block", group.tokens_per_block},
                      {"tokens_per_chunk", group.tokens_per_chunk},
                      {"hashes_per_chunk", group.hashes_per_chunk},
                      {"window_chunks", OrNull(group.window_chunks)},
                      {"alignment_chunks", OrNull(group.alignment_chunks)},
                      {"eagle", group.eagle},
                      {"requires_cow_source", group.requires_cow_source}});
  }
  return groups;
}

Json LayoutJson(const OffloadLayout& layout) {
  Json windows = Json::array();
  for (const size_t group : layout.lookup_order) {
    if (layout.groups[group].window_chunks) windows.push_back(group);
  }
  return {{"groups", GroupsJson(layout)},
          {"lookup_order", layout.lookup_order},
          {"window_groups", windows},
          {"mamba_align_tokens", OrNull(layout.mamba_align_tokens)},
          {"supports_partial_tail", layout.supports_partial_tail}};
}

}  // namespace kvcast::tools
