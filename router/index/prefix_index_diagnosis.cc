// The part of PrefixIndex::Impl that says why a worker's prefixes are not reused.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string_view>
#include <utility>

#include "router/index/prefix_index_impl.h"
#include "router/index/reuse_probe.h"

namespace kvcast {
namespace router {
namespace {

constexpr size_t kTestedPrompts = 64;      // of a generation
constexpr int64_t kTestedUnits = 1 << 16;  // of all of them together

// A sampled prompt.
struct SampledPrompt {
  int64_t tokens = 0;     // as far as it was followed
  int64_t asked_for = 0;  // tokens of the longest prefix that was asked for again; 0: none
  bool cut = false;
  std::vector<ContentKey> contents;  // by unit; kUnnamed where not known
  std::vector<uint64_t> removed;     // by unit: groups, by bit
  bool key_differs = false;  // asked for under another salt or adapter, never again under its own
};

using Node = PromptSample::Node;

// By node of the first prefix: whether other prompts have its tokens under another scope.
absl::flat_hash_set<uint16_t> UnderSeveralScopes(const PromptSample::Generation& generation) {
  std::map<ContentKey, ContentKey> scope_of;
  absl::flat_hash_set<ContentKey> several;
  for (const PromptSample::Start& start : generation.starts) {
    const auto [entry, added] = scope_of.try_emplace(start.tokens, start.scope);
    if (!added && entry->second != start.scope) several.insert(start.tokens);
  }
  absl::flat_hash_set<uint16_t> nodes;
  for (const PromptSample::Start& start : generation.starts) {
    if (several.contains(start.tokens)) nodes.insert(start.node);
  }
  return nodes;
}

SampledPrompt PromptTo(const PromptSample::Generation& generation, uint16_t leaf, int64_t unit,
                       const absl::flat_hash_set<uint16_t>& several_scopes) {
  const std::vector<Node>& nodes = generation.nodes;
  SampledPrompt prompt;
  prompt.tokens = nodes[leaf].end;
  prompt.cut = nodes[leaf].cut != 0;
  prompt.contents.resize(static_cast<size_t>(prompt.tokens / unit));
  prompt.removed.resize(prompt.contents.size());
  uint16_t first = leaf;
  for (uint16_t at = leaf; at != PromptSample::kRoot; at = nodes[at].parent) {
    const Node& node = nodes[at];
    first = at;
    if (node.repeated != 0) prompt.asked_for = std::max<int64_t>(prompt.asked_for, node.end);
    if (node.end % unit != 0) continue;
    const auto position = static_cast<size_t>(node.end / unit - 1);
    prompt.contents[position] = node.content;
    prompt.removed[position] = node.removed;
  }
  prompt.key_differs = prompt.asked_for == 0 && several_scopes.contains(first);
  return prompt;
}

// Of both generations, evenly spread.
std::vector<SampledPrompt> PromptsOf(const PromptSample& sample, int64_t unit) {
  std::vector<SampledPrompt> prompts;
  int64_t units = 0;
  for (const PromptSample::Generation& generation : sample.generations()) {
    std::vector<uint16_t> leaves;
    for (uint16_t i = 0; i < generation.nodes.size(); ++i) {
      if (generation.nodes[i].child == PromptSample::kRoot) leaves.push_back(i);
    }
    const auto several_scopes = UnderSeveralScopes(generation);
    const size_t count = std::min(leaves.size(), kTestedPrompts);
    for (size_t i = 0; i < count && units < kTestedUnits; ++i) {
      prompts.push_back(
          PromptTo(generation, leaves[i * leaves.size() / count], unit, several_scopes));
      units += std::ssize(prompts.back().contents);
    }
  }
  return prompts;
}

// The blocks of a prompt that a worker holds, and the rules that it is asked by.
struct PromptHolding {
  std::vector<GroupResidency> parts;  // the groups that take part
  std::vector<size_t> group_of;       // by part: group_idx
  std::vector<bool> announced;        // by part
  int64_t alignment = 0;
  int64_t group_alignment = 0;
  int64_t replay_tokens = 0;
  bool content_unknown = false;
};

// The blocks of the groups before they removed blocks of the prompt.
std::vector<GroupResidency> WithRemoved(const PromptHolding& holding, const SampledPrompt& prompt,
                                        int64_t unit) {
  std::vector<GroupResidency> groups = holding.parts;
  for (size_t part = 0; part < groups.size(); ++part) {
    GroupResidency& group = groups[part];
    for (size_t i = 0; i < prompt.removed.size(); ++i) {
      if ((prompt.removed[i] >> holding.group_of[part] & 1) == 0) continue;
      const int64_t end = static_cast<int64_t>(i + 1) * unit;
      if (end % group.spec.block_size == 0) {
        const int64_t block = end / group.spec.block_size - 1;
        if (block < group.blocks.size()) group.blocks.Set(block);
      } else if (static_cast<int64_t>(i) < group.partial_ends.size()) {
        group.partial_ends.Set(static_cast<int64_t>(i));
      }
    }
  }
  return groups;
}

// Blocks on several sampled prompts are counted once.
struct BlockCount {
  using Blocks = absl::flat_hash_set<std::pair<ContentKey, size_t>>;
  Blocks held;
  Blocks usable;

  void Add(const PromptHolding& holding, const SampledPrompt& prompt, int64_t unit,
           ReuseDiagnosis& diagnosis) {
    const std::vector<GroupResidency>& parts = holding.parts;
    const auto serving = UsableBlocks(parts, unit, holding.alignment, prompt.tokens);
    for (size_t part = 0; part < parts.size(); ++part) {
      const size_t group = holding.group_of[part];
      if (group >= diagnosis.groups.size()) diagnosis.groups.resize(group + 1);
      ReuseDiagnosis::GroupUse& use = diagnosis.groups[group];
      const int64_t units = parts[part].spec.block_size / unit;
      for (int64_t block = 0; block < parts[part].blocks.size(); ++block) {
        if (!parts[part].blocks.Test(block)) continue;
        const ContentKey name = prompt.contents[static_cast<size_t>((block + 1) * units - 1)];
        use.held += held.insert({name, group}).second;
        use.usable += serving[part].Test(block) && usable.insert({name, group}).second;
      }
    }
  }
};

bool HoldsAny(const std::vector<GroupResidency>& groups) {
  const auto any = [](const Bitmap& bits) {
    return std::ranges::any_of(bits.words(), [](uint64_t word) { return word != 0; });
  };
  return std::ranges::any_of(groups, [&](const GroupResidency& group) {
    return any(group.blocks) || any(group.partial_ends);
  });
}

// The common cause of the lost prompts.
struct Findings {
  std::map<std::pair<ReuseCause, int64_t>, int64_t> by_cause_and_group;  // group -1: none

  void Note(const ProbeFinding& finding, int64_t group, ReuseDiagnosis& diagnosis) {
    ++diagnosis.tested;
    if (!finding.lost) return;
    ++diagnosis.lost;
    if (!finding.cause) return;
    ++diagnosis.lost_by_cause[static_cast<size_t>(*finding.cause)];
    ++by_cause_and_group[{*finding.cause, group}];
  }
  void Name(ReuseDiagnosis& diagnosis) const {
    if (!diagnosis.enough_data() || diagnosis.lost * 2 <= diagnosis.tested) return;
    const auto most = std::ranges::max_element(diagnosis.lost_by_cause);
    if (*most == 0) return;
    diagnosis.cause = static_cast<ReuseCause>(most - diagnosis.lost_by_cause.begin());
    int64_t prompts = 0;
    for (const auto& [key, count] : by_cause_and_group) {
      if (key.first != *diagnosis.cause || count <= prompts) continue;
      prompts = count;
      diagnosis.group = key.second < 0 ? std::nullopt : std::optional(key.second);
    }
  }
};

void DescribeGroups(const WorkerState& worker, ReuseDiagnosis& diagnosis) {
  diagnosis.groups.resize(worker.catalogue.Specs().size());
  diagnosis.alignment = worker.catalogue.alignment();
  diagnosis.group_alignment = worker.catalogue.rule_alignment();
  diagnosis.alignment_told = worker.config.alignment > 0;
  diagnosis.groups_learned = worker.config.groups.empty();
  const int below = std::bit_width(worker.announced);
  const int first_without = std::countr_one(worker.announced);
  if (first_without < below) diagnosis.unannounced_group = first_without;
}

ProbeFinding Test(const PromptHolding& holding, const SampledPrompt& prompt, int64_t unit) {
  if (prompt.key_differs) {
    return {.lost = true, .cause = ReuseCause::kKeyDiffers, .part = {}};
  }
  const auto before = WithRemoved(holding, prompt, unit);
  return Explain({.held = holding.parts,
                  .held_or_removed = before,
                  .announced = holding.announced,
                  .unit = unit,
                  .tokens = prompt.asked_for > 0 ? prompt.asked_for : prompt.tokens,
                  .alignment = holding.alignment,
                  .group_alignment = holding.group_alignment,
                  .replay_tokens = holding.replay_tokens,
                  .content_unknown = holding.content_unknown});
}

// REQUIRES: the writers' lock is held, and the thread is pinned.
std::optional<PromptHolding> HoldingOf(const WorkerState& worker, const SampledPrompt& prompt,
                                       int64_t unit, const ResidencyMap& map,
                                       const PlaceTable& places) {
  const WorkerRules& rules = *worker.view->rules.load(std::memory_order_relaxed);
  if (rules.unit != unit || rules.alignment <= 0) return std::nullopt;
  const int64_t units = std::ssize(prompt.contents);
  const int64_t tokens = prompt.tokens + 1 + rules.lookahead;
  MatchQuery query(map, places,
                   {.unit = unit,
                    .prompt_tokens = tokens,
                    .lookahead = rules.lookahead,
                    .contents = prompt.contents,
                    .hashes = {}},
                   {.unit = unit, .units = units, .prompt_units = units, .prompt_tokens = tokens});
  query.Ask(*worker.view);
  KV_CHECK(query.Read());
  const MatchPlan plan = query.Plan();
  PromptHolding holding = {.parts = plan.parts(),
                           .group_of = {},
                           .announced = {},
                           .alignment = rules.alignment,
                           .group_alignment = worker.catalogue.rule_alignment(),
                           .replay_tokens = rules.replay_tokens,
                           .content_unknown = worker.unnamed[static_cast<size_t>(Tier::kGpu)] > 0};
  for (size_t part = 0; part < holding.parts.size(); ++part) {
    holding.group_of.push_back(plan.group_of(part));
    holding.announced.push_back((worker.announced >> plan.group_of(part) & 1) != 0);
  }
  return holding;
}

}  // namespace
}  // namespace router

ReuseDiagnosis PrefixIndex::Impl::Diagnose(WorkerId id) const {
  using router::WorkerState;
  ReuseDiagnosis diagnosis;
  int64_t unit = 0;
  const auto prompts =
      ReadWorker(id, std::vector<router::SampledPrompt>(), [&](const WorkerState& worker) {
        router::DescribeGroups(worker, diagnosis);
        unit = worker.catalogue.unit();
        return unit > 0 ? router::PromptsOf(worker.sample, unit)
                        : std::vector<router::SampledPrompt>();
      });
  router::Findings findings;
  router::BlockCount count;
  for (const router::SampledPrompt& prompt : prompts) {
    const auto holding =
        ReadWorker(id, std::optional<router::PromptHolding>(), [&](const WorkerState& worker) {
          const EpochDomain::Pin pin(epochs_);
          return router::HoldingOf(worker, prompt, unit, map_, places_);
        });
    // Prompts that all groups have lost are not in the cache any more.
    if (!holding || !router::HoldsAny(holding->parts)) continue;
    count.Add(*holding, prompt, unit, diagnosis);
    if (prompt.cut && prompt.asked_for == 0) continue;
    const router::ProbeFinding finding = router::Test(*holding, prompt, unit);
    const int64_t group =
        finding.part ? static_cast<int64_t>(holding->group_of[*finding.part]) : -1;
    findings.Note(finding, group, diagnosis);
  }
  findings.Name(diagnosis);
  return diagnosis;
}

ReuseDiagnosis PrefixIndex::Diagnose(WorkerId worker) const { return impl_->Diagnose(worker); }

std::string_view ReuseCauseName(ReuseCause cause) {
  constexpr std::array<std::string_view, kReuseCauses> kNames = {
      "never_announced",      "never_stored",         "evicted_first",
      "alignment_too_coarse", "told_alignment_wrong", "key_differs"};
  return kNames[static_cast<size_t>(cause)];
}

}  // namespace kvcast
