// SPDX-License-Identifier: Apache-2.0
#include "router/index/hit_report.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "kvcast/spec/reuse.h"
#include "router/rules/worker_rules.h"

namespace kvcast::router {
namespace {

// Returns the number of tokens of a GPU store that starts at the root and names every block of its
// span. 0: the store does not have this form.
int64_t RootSpan(const BlockStored& event) {
  if (event.parent_block_hash || !event.token_ids || event.block_hashes.empty()) return 0;
  if (event.tokens_per_position == 0 || TierOf(event.medium) != Tier::kGpu) return 0;
  const int64_t tokens = std::ssize(*event.token_ids) / event.tokens_per_position;
  // Divides instead of multiplying, because the block size comes from the network and a product
  // could overflow.
  const int64_t blocks = std::ssize(event.block_hashes);
  return tokens % blocks == 0 && tokens / blocks == event.block_size ? tokens : 0;
}

// True if the store is a GPU store at the root whose tokens were not sent. Its span is not known,
// because a store need not name every block of its span.
bool HasUnknownSpan(const BlockStored& event) {
  if (event.parent_block_hash || TierOf(event.medium) != Tier::kGpu) return false;
  return !event.token_ids || event.token_ids->empty();
}

bool SizeKnown(const GroupSpec& spec) {
  if (IsWindowKind(spec.kind)) return spec.sliding_window > 0;
  return spec.kind != SpecKind::kChunkedLocalAttention || spec.chunk_size > 0;
}

HolderId HolderIdOf(std::span<const HolderId> holders, size_t group) {
  return group < holders.size() ? holders[group] : kNoHolderId;
}

// The leading stores that start at the root and have equal spans. Each store belongs to a different
// group.
class RootRun {
 public:
  RootRun(std::span<const Event> events, const std::vector<GroupSpec>& specs)
      : store_of_group_(specs.size(), nullptr) {
    for (const Event& event : events) {
      const auto* stored = std::get_if<BlockStored>(&event);
      if (stored == nullptr || !Add(*stored, specs)) break;
      ++stores_;
    }
  }

  // True if the run has a store of every group that takes part in lookups.
  bool Complete(const std::vector<GroupSpec>& specs) const {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (TakesPart(specs[i]) && store_of_group_[i] == nullptr) return false;
    }
    return stores_ > 0;
  }
  const BlockStored* store(size_t group) const { return store_of_group_[group]; }
  size_t stores() const { return stores_; }
  int64_t span() const { return span_; }

 private:
  bool Add(const BlockStored& stored, const std::vector<GroupSpec>& specs) {
    const int64_t span = RootSpan(stored);
    if (span == 0 || (stores_ > 0 && span != span_)) return false;
    const auto group = static_cast<uint64_t>(stored.group_idx.value_or(0));
    if (group >= specs.size() || store_of_group_[group] != nullptr) return false;
    if (!SizeKnown(specs[group]) || stored.block_size != specs[group].block_size) return false;
    store_of_group_[group] = &stored;
    span_ = span;
    return true;
  }

  std::vector<const BlockStored*> store_of_group_;
  size_t stores_ = 0;
  int64_t span_ = 0;
};

GroupResidency ResidencyOf(const BlockStored& stored, const GroupSpec& spec, HolderId holder,
                           const ResidencyMap& map) {
  GroupResidency residency{.spec = spec};
  residency.blocks.Resize(std::ssize(stored.block_hashes));
  for (size_t i = 0; i < stored.block_hashes.size(); ++i) {
    if (map.Holds(stored.block_hashes[i], holder)) residency.blocks.Set(static_cast<int64_t>(i));
  }
  return residency;
}

// If a request computed a prefix, the last block of the prefix is new in every group. If a request
// hit a prefix, every group of full attention holds the last block of the prefix.
bool HoldsLastBlock(const BlockStored& stored, std::span<const HolderId> holders,
                    const ResidencyMap& map) {
  const uint8_t group = GroupRegistry::GroupOf(stored.group_idx);
  return !stored.block_hashes.empty() &&
         map.Holds(stored.block_hashes.back(), HolderIdOf(holders, group));
}

// True if a group already holds the last block of its store in the run. If the worker has groups of
// full attention, only these groups count.
bool RepeatsHeldBlocks(const RootRun& run, const std::vector<GroupSpec>& specs,
                       std::span<const HolderId> holders, const GroupRegistry& registry,
                       const ResidencyMap& map) {
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool full = IsFullKind(specs[i].kind) || !registry.has_full_kind();
    if (full && run.store(i) != nullptr && HoldsLastBlock(*run.store(i), holders, map)) return true;
  }
  return false;
}

}  // namespace

HitReport ReadHitReport(std::span<const Event> events, std::span<const HolderId> holders,
                        const GroupRegistry& registry, const WorkerConfig& config,
                        int64_t lookahead, const ResidencyMap& map) {
  const auto* first = events.empty() ? nullptr : std::get_if<BlockStored>(&events[0]);
  if (first == nullptr || registry.alignment() == 0) return {};
  const std::vector<GroupSpec> specs = EvaluatedGroups(config, registry, lookahead);
  // A store with a token offset leaves out the blocks before a window. A report of this form looks
  // the same as a store of computed blocks.
  const bool leaves_out = first->token_offset && (RootSpan(*first) == 0 || specs.size() > 1);
  if (leaves_out || HasUnknownSpan(*first)) {
    if (!HoldsLastBlock(*first, holders, map)) return {};
    return {.reading = HitReportReading::kUnclear, .events = 1};
  }
  if (RootSpan(*first) == 0) return {};
  const RootRun run(events, specs);
  if (!RepeatsHeldBlocks(run, specs, holders, registry, map)) return {};
  // For a group of unknown window or chunk size, the prefix that it could serve is unknown.
  const bool known = std::all_of(specs.begin(), specs.end(), SizeKnown);
  if (!known) return {.reading = HitReportReading::kUnclear};
  if (!run.Complete(specs)) return {};

  HitReport report{.events = run.stores()};
  std::vector<GroupResidency> groups;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (run.store(i) == nullptr) continue;
    groups.push_back(ResidencyOf(*run.store(i), specs[i], HolderIdOf(holders, i), map));
    report.blocks += run.store(i)->block_hashes.size();
  }
  const auto servable = [&](int64_t max_tokens) {
    return ReusablePrefix(groups, registry.hash_block_size(), registry.alignment(), max_tokens)
        .tokens;
  };
  const bool shorter = servable(run.span() - 1) > 0;
  // The report does not contain the block after the hit. A lookup for EAGLE needs that block.
  for (GroupResidency& group : groups) group.spec.eagle = false;
  report.compared = report.blocks;
  if (servable(run.span()) != run.span()) return {.compared = report.compared};
  // If a hit is not longer than replay_tokens, the engine reports the hit, but computes all tokens
  // of the hit again.
  const bool counts = shorter && run.span() > config.replay_tokens.value_or(0);
  report.reading = counts ? HitReportReading::kYes : HitReportReading::kMaybe;
  return report;
}

}  // namespace kvcast::router
