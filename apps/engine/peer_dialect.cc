// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/peer_dialect.h"

#include <algorithm>
#include <utility>

#include "router/service/ingest/mooncake_events.h"
#include "router/service/ingest/mooncake_writer.h"
#include "router/service/ingest/trtllm_events.h"
#include "router/service/ingest/trtllm_writer.h"
#include "src/wire/layout.h"

namespace kvcast::tools {
namespace {

using router::EventFormat;

constexpr std::pair<std::string_view, EventFormat> kPeers[] = {
    {"trtllm", EventFormat::kTrtllm}, {"mooncake", EventFormat::kMooncake}};

// Returns the windows by group_idx. Full attention counts as the longest window.
std::vector<int64_t> WindowsOf(const std::vector<GroupSpec>& groups, int64_t max_model_len) {
  std::vector<int64_t> windows;
  for (const GroupSpec& group : groups) {
    const bool full = group.kind == SpecKind::kFullAttention;
    windows.push_back(full ? max_model_len : group.sliding_window);
  }
  return windows;
}

router::TrtllmConfig TrtllmConfigOf(const CacheConfig& cache) {
  return {.window_sizes = WindowsOf(cache.groups, cache.max_model_len),
          .partial_reuse = false,
          .tokens_per_block = cache.groups.front().block_size};
}

class TrtllmPeerWriter : public PeerWriter {
 public:
  explicit TrtllmPeerWriter(const router::TrtllmConfig& config)
      : writer_(
            {.window_sizes = config.window_sizes, .tokens_per_block = config.tokens_per_block}) {}
  Status Write(const EventBatch& batch, std::vector<uint8_t>& payload) override {
    json_.clear();
    if (Status status = writer_.Write(batch, json_); !status.ok()) return status;
    payload.assign(json_.begin(), json_.end());
    return Status();
  }

 private:
  router::TrtllmWriter writer_;
  std::string json_;
};

class MooncakePeerWriter : public PeerWriter {
 public:
  Status Write(const EventBatch& batch, std::vector<uint8_t>& payload) override {
    return writer_.Write(batch, payload);
  }

 private:
  router::MooncakeWriter writer_{router::MooncakeWriterConfig()};
};

}  // namespace

std::string_view PeerDialect::name() const {
  for (const auto& [name, peer] : kPeers) {
    if (peer == format) return name;
  }
  return DialectName(dialect);
}

std::optional<PeerDialect> ParsePeerDialect(std::string_view name) {
  for (const auto& [known, format] : kPeers) {
    if (name == known) return PeerDialect{.format = format};
  }
  const auto dialect = ParseDialect(name);
  return dialect ? std::optional(PeerDialect{.dialect = *dialect}) : std::nullopt;
}

std::vector<PeerDialect> AllPeerDialects() {
  std::vector<PeerDialect> all;
  for (int i = 0; i <= static_cast<int>(Dialect::kKvcast1); ++i) {
    all.push_back({.dialect = static_cast<Dialect>(i)});
  }
  for (const auto& [name, format] : kPeers) all.push_back({.format = format});
  return all;
}

Status CheckRepresentable(const PeerDialect& dialect, const CacheConfig& cache, bool host_memory) {
  constexpr const char* kNoLookahead = "has no lookahead_token_ids, which --draft-tokens needs";
  const auto refused = [&](const std::string& reason) {
    return Status(StatusCode::kInvalidArgument, "'" + std::string(dialect.name()) + "' " + reason);
  };
  const std::vector<GroupSpec>& groups = cache.groups;
  const bool lookahead = cache.chain_form.lookahead > 0;
  if (!dialect.of_engine() && lookahead) return refused(kNoLookahead);
  if (dialect.of_engine()) {
    const wire::FieldSet fields(wire::LayoutOf(dialect.dialect).stored.fields);
    if (groups.size() > 1 && !fields.Contains(wire::Field::kGroupIdx)) {
      return refused("has no group_idx, which a model of several groups needs");
    }
    if (lookahead && !fields.Contains(wire::Field::kLookaheadTokenIds)) {
      return refused(kNoLookahead);
    }
    if (host_memory && !fields.Contains(wire::Field::kMedium)) {
      return refused("has no medium, which host memory needs");
    }
  }
  if (dialect.format != EventFormat::kTrtllm) return Status();
  if (host_memory) return refused("represents only one tier of a block, but host memory needs two");
  std::vector<int64_t> windows = WindowsOf(groups, kMaxWindow);
  std::ranges::sort(windows);
  if (std::ranges::adjacent_find(windows) != windows.end()) {
    return refused(
        "identifies groups by their windows, but two groups of the model have the same window");
  }
  return Status();
}

void RegisterPeer(const PeerDialect& dialect, const CacheConfig& cache,
                  router::WorkerRegistration& source) {
  source.format = dialect.format;
  if (dialect.format == EventFormat::kTrtllm) source.trtllm = TrtllmConfigOf(cache);
}

std::unique_ptr<PeerWriter> MakePeerWriter(const PeerDialect& dialect, const CacheConfig& cache) {
  switch (dialect.format) {
    case EventFormat::kEngine:
      return nullptr;
    case EventFormat::kTrtllm:
      return std::make_unique<TrtllmPeerWriter>(TrtllmConfigOf(cache));
    case EventFormat::kMooncake:
      return std::make_unique<MooncakePeerWriter>();
  }
  return nullptr;
}

}  // namespace kvcast::tools
