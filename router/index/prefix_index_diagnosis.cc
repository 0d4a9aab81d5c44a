// The part of PrefixIndex::Impl that finds why a worker's prefixes are not reused.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string_view>
#include <utility>

#include "router/index/prefix_index_impl.h"
#include "router/rules/reuse_probe.h"

namespace kvcast {
namespace router {
namespace {

constexpr size_t kTestedUnits = 1 << 16;

// A prompt to be tested.
struct TestedPrompt {
  SampledPrompt sampled;
  // True: another sampled prompt begins with the same tokens under another salt or adapter, and no
  // request needed this prompt again.
  bool key_differs = false;
};

// Returns the keys of first units (SampledPrompt::tokens) that occur in the prompts under several
// scopes. A scope is a salt and an adapter.
absl::flat_hash_set<ContentKey> UnderSeveralScopes(std::span<const SampledPrompt> prompts) {
  std::map<ContentKey, ContentKey> scope_of;
  absl::flat_hash_set<ContentKey> several;
  for (const SampledPrompt& prompt : prompts) {
    if (prompt.tokens() == kUnnamed) continue;
    const auto [entry, added] = scope_of.try_emplace(prompt.tokens(), prompt.scope());
    if (!added && entry->second != prompt.scope()) several.insert(prompt.tokens());
  }
  return several;
}

std::vector<TestedPrompt> PromptsOf(const PromptSample& sample, int64_t hash_block_size) {
  std::vector<TestedPrompt> prompts;
  if (hash_block_size <= 0 || sample.hash_block_size() != hash_block_size) return prompts;
  const auto several_scopes = UnderSeveralScopes(sample.prompts());
  size_t units = 0;
  for (const SampledPrompt& prompt : sample.prompts()) {
    units += prompt.units();
    if (units > kTestedUnits) break;
    const bool differs = prompt.asked_for() == 0 && several_scopes.contains(prompt.tokens());
    prompts.push_back({prompt, differs});
  }
  return prompts;
}

// The blocks of a prompt that a worker holds, and the rules of a query of this worker.
struct PromptHolding {
  std::vector<GroupResidency> parts;  // the groups that take part
  std::vector<size_t> group_of;       // by part: group_idx
  std::vector<bool> announced;        // by part
  int64_t alignment = 0;
  int64_t group_alignment = 0;
  int64_t replay_tokens = 0;
  bool content_unknown = false;
};

// Returns the blocks of the prompt that the groups held before they removed blocks. A group removed
// each block that it stored and does not hold.
std::vector<GroupResidency> WithRemoved(const PromptHolding& holding, const SampledPrompt& prompt,
                                        int64_t hash_block_size) {
  std::vector<GroupResidency> groups = holding.parts;
  for (size_t part = 0; part < groups.size(); ++part) {
    GroupResidency& group = groups[part];
    for (size_t i = 0; i < prompt.units(); ++i) {
      if (!prompt.WasStored(i, holding.group_of[part])) continue;
      const int64_t end = static_cast<int64_t>(i + 1) * hash_block_size;
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

int64_t TokensOf(const SampledPrompt& prompt, int64_t hash_block_size) {
  return static_cast<int64_t>(prompt.units()) * hash_block_size;
}

// Counts the held and the usable blocks. A block that is in several sampled prompts counts once.
struct BlockCount {
  using Blocks = absl::flat_hash_set<std::pair<ContentKey, size_t>>;
  Blocks held;
  Blocks usable;

  void Add(const PromptHolding& holding, const SampledPrompt& prompt, int64_t hash_block_size,
           ReuseDiagnosis& diagnosis) {
    const std::vector<GroupResidency>& parts = holding.parts;
    const auto serving =
        UsableBlocks(parts, hash_block_size, holding.alignment, TokensOf(prompt, hash_block_size));
    for (size_t part = 0; part < parts.size(); ++part) {
      const size_t group = holding.group_of[part];
      if (group >= diagnosis.groups.size()) diagnosis.groups.resize(group + 1);
      ReuseDiagnosis::GroupUse& use = diagnosis.groups[group];
      const int64_t units = parts[part].spec.block_size / hash_block_size;
      for (int64_t block = 0; block < parts[part].blocks.size(); ++block) {
        if (!parts[part].blocks.Test(block)) continue;
        const ContentKey name = prompt.keys()[static_cast<size_t>((block + 1) * units - 1)];
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

// Counts the causes of the lost prompts, to find the most frequent cause.
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
  void NameCause(ReuseDiagnosis& diagnosis) const {
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
  diagnosis.groups.resize(worker.registry.Specs().size());
  diagnosis.alignment = worker.registry.alignment();
  diagnosis.group_alignment = worker.registry.rule_alignment();
  diagnosis.alignment_told = worker.config.alignment > 0;
  diagnosis.groups_learned = worker.config.groups.empty();
  const int below = std::bit_width(worker.announced);
  const int first_without = std::countr_one(worker.announced);
  if (first_without < below) diagnosis.unannounced_group = first_without;
}

ProbeFinding Test(const PromptHolding& holding, const TestedPrompt& tested,
                  int64_t hash_block_size) {
  if (tested.key_differs) {
    return {.lost = true, .cause = ReuseCause::kKeyDiffers, .group = {}};
  }
  const SampledPrompt& prompt = tested.sampled;
  const auto asked_for = static_cast<int64_t>(prompt.asked_for()) * hash_block_size;
  const auto before = WithRemoved(holding, prompt, hash_block_size);
  return Explain({.held = holding.parts,
                  .held_or_removed = before,
                  .announced = holding.announced,
                  .hash_block_size = hash_block_size,
                  .tokens = asked_for > 0 ? asked_for : TokensOf(prompt, hash_block_size),
                  .alignment = holding.alignment,
                  .group_alignment = holding.group_alignment,
                  .replay_tokens = holding.replay_tokens,
                  .content_unknown = holding.content_unknown});
}

// REQUIRES: the writers' lock is held, and the thread is pinned.
std::optional<PromptHolding> HoldingOf(const WorkerState& worker, const SampledPrompt& prompt,
                                       int64_t hash_block_size, const ResidencyMap& map,
                                       const HolderTable& holder_table) {
  const WorkerRules& rules = *worker.view->rules.load(std::memory_order_relaxed);
  if (rules.hash_block_size != hash_block_size || rules.alignment <= 0) return std::nullopt;
  const auto units = static_cast<int64_t>(prompt.units());
  const int64_t tokens = TokensOf(prompt, hash_block_size) + 1 + rules.lookahead;
  MatchQuery query(map, holder_table,
                   {.hash_block_size = hash_block_size,
                    .prompt_tokens = tokens,
                    .lookahead = rules.lookahead,
                    .contents = prompt.keys(),
                    .hashes = {}},
                   {.hash_block_size = hash_block_size,
                    .units = units,
                    .prompt_units = units,
                    .prompt_tokens = tokens});
  query.Ask(*worker.view);
  KV_CHECK(query.Read());
  const MatchPlan plan = query.Plan();
  PromptHolding holding = {.parts = plan.parts(),
                           .group_of = {},
                           .announced = {},
                           .alignment = rules.alignment,
                           .group_alignment = worker.registry.rule_alignment(),
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
  int64_t hash_block_size = 0;
  const auto prompts =
      ReadWorker(id, std::vector<router::TestedPrompt>(), [&](const WorkerState& worker) {
        router::DescribeGroups(worker, diagnosis);
        hash_block_size = worker.registry.hash_block_size();
        return router::PromptsOf(worker.sample, hash_block_size);
      });
  router::Findings findings;
  router::BlockCount count;
  for (const router::TestedPrompt& prompt : prompts) {
    const router::SampledPrompt& sampled = prompt.sampled;
    const auto holding =
        ReadWorker(id, std::optional<router::PromptHolding>(), [&](const WorkerState& worker) {
          const ReclaimDomain::Pin pin(reclaim_);
          return router::HoldingOf(worker, sampled, hash_block_size, map_, holder_table_);
        });
    // A prompt without a held block is not in the cache.
    if (!holding || !router::HoldsAny(holding->parts)) continue;
    count.Add(*holding, sampled, hash_block_size, diagnosis);
    if (sampled.cut() && sampled.asked_for() == 0) continue;
    const router::ProbeFinding finding = router::Test(*holding, prompt, hash_block_size);
    const int64_t group =
        finding.group ? static_cast<int64_t>(holding->group_of[*finding.group]) : -1;
    findings.Note(finding, group, diagnosis);
  }
  findings.NameCause(diagnosis);
  return diagnosis;
}

ReuseDiagnosis PrefixIndex::Diagnose(WorkerId worker) const { return Of(worker).Diagnose(worker); }

std::string_view ReuseCauseName(ReuseCause cause) {
  constexpr std::array<std::string_view, kReuseCauses> kNames = {
      "never_announced",      "never_stored",         "evicted_first",
      "alignment_too_coarse", "told_alignment_wrong", "key_differs"};
  return kNames[static_cast<size_t>(cause)];
}

}  // namespace kvcast
