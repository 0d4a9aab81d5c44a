// SPDX-License-Identifier: Apache-2.0
#include "router/match_query.h"

#include <algorithm>
#include <bit>

namespace kvcast::router {

// Kept from query to query, so that a query allocates nothing but its answer. The tables by slot
// and by place are not cleared: an entry counts if it bears the stamp of the reading in work.
struct MatchQuery::Scratch {
  struct Stamped {
    uint64_t stamp = 0;
    uint32_t value = 0;
  };

  uint64_t stamp = 0;
  std::vector<Stamped> asked_of_slot;
  std::vector<Stamped> mark_of_place;
  std::vector<Asked> asked;
  std::vector<Mark> marks;
  std::vector<uint64_t> words;

  static Stamped& At(std::vector<Stamped>& table, size_t i) {
    if (i >= table.size()) table.resize(std::max(i + 1, 2 * table.size()));
    return table[i];
  }
};

namespace {

// Batches show themselves in well under a microsecond; one that takes longer was interrupted.
uint64_t EvenVersion(const WorkerView& view) {
  constexpr int kTries = 100;
  uint64_t version = view.version.load(std::memory_order_acquire);
  for (int i = 0; i < kTries && version % 2 != 0; ++i) {
    version = view.version.load(std::memory_order_acquire);
  }
  return version;
}

}  // namespace

MatchQuery::Scratch& MatchQuery::ThreadScratch() {
  static thread_local Scratch scratch;
  return scratch;
}

MatchQuery::MatchQuery(const ResidencyMap& map, const PlaceTable& places,
                       std::span<const BlockHash> chain, const QueryShape& shape)
    : map_(map),
      places_(places),
      chain_(chain.first(static_cast<size_t>(shape.prompt_units))),
      shape_(shape),
      words_((chain_.size() + 63) / 64),
      scratch_(ThreadScratch()) {
  ++scratch_.stamp;
}

MatchQuery::~MatchQuery() {
  scratch_.asked.clear();
  scratch_.marks.clear();
  scratch_.words.clear();
}

void MatchQuery::Ask(const WorkerView& worker) {
  Scratch::Stamped& entry = Scratch::At(scratch_.asked_of_slot, worker.slot);
  if (entry.stamp == scratch_.stamp) return;
  entry = {scratch_.stamp, static_cast<uint32_t>(scratch_.asked.size())};
  scratch_.asked.push_back({.view = &worker});
}

std::span<const uint64_t> MatchQuery::WordsOf(uint32_t mark) const {
  return std::span(scratch_.words).subspan(mark * words_, words_);
}

// Whether nobody who is asked can have use for a block behind the first that no one holds.
bool MatchQuery::UntilGap() const {
  if (shape_.policy != MatchPolicy::kExact) return false;
  return std::all_of(scratch_.asked.begin(), scratch_.asked.end(), [](const Asked& asked) {
    return asked.settled || (asked.rules->leading_run && asked.rules->blocks_per_chunk == 1);
  });
}

bool MatchQuery::Read() {
  const uint64_t reading = ++scratch_.stamp;
  for (uint32_t i = 0; i < scratch_.asked.size(); ++i) {
    Asked& asked = scratch_.asked[i];
    if (asked.settled) continue;
    asked.version = EvenVersion(*asked.view);
    asked.rules = asked.view->rules.load(std::memory_order_acquire);
    asked.certain = asked.view->certain.load(std::memory_order_acquire);
    asked.first_mark = kNone;
    Scratch::At(scratch_.asked_of_slot, asked.view->slot) = {reading, i};
  }
  map_.Walk(chain_, UntilGap(),
            [&](const HolderSet& holders, uint32_t offset, size_t position, uint32_t length) {
              Collect(holders, offset, position, length);
            });
  bool all = true;
  for (Asked& asked : scratch_.asked) {
    if (asked.settled) continue;
    asked.settled = asked.version % 2 == 0 &&
                    asked.view->version.load(std::memory_order_acquire) == asked.version;
    all = all && asked.settled;
  }
  return all;
}

// The place's mark in this reading; kNone: nobody asked for it.
inline uint32_t MatchQuery::MarkOf(PlaceId place) {
  if (place < scratch_.mark_of_place.size()) {
    const Scratch::Stamped& entry = scratch_.mark_of_place[place];
    if (entry.stamp == scratch_.stamp) return entry.value;
  }
  return NewMarkOf(place);
}

uint32_t MatchQuery::NewMarkOf(PlaceId place) {
  Scratch::Stamped& entry = Scratch::At(scratch_.mark_of_place, place);
  entry = {scratch_.stamp, kNone};
  const std::optional<Place> where = places_.Read(place);
  if (!where) return kNone;
  const Scratch::Stamped& asked = Scratch::At(scratch_.asked_of_slot, where->slot);
  if (asked.stamp != scratch_.stamp) return kNone;
  entry.value = static_cast<uint32_t>(scratch_.marks.size());
  uint32_t& first = scratch_.asked[asked.value].first_mark;
  scratch_.marks.push_back({asked.value, first, where->group, where->tier});
  first = entry.value;
  scratch_.words.resize(scratch_.words.size() + words_);
  return entry.value;
}

void MatchQuery::Collect(const HolderSet& holders, uint32_t offset, size_t position,
                         uint32_t length) {
  const uint64_t mask = BitRange(0, length);
  const size_t word = position / 64;
  const auto shift = static_cast<uint32_t>(position % 64);
  const uint32_t size = holders.size();
  for (uint32_t i = 0; i < size; ++i) {
    const uint64_t bits = holders.bits(i) >> offset & mask;
    if (bits == 0) continue;
    const uint32_t mark = MarkOf(holders.place(i));
    if (mark == kNone) continue;
    uint64_t* const words = scratch_.words.data() + mark * words_ + word;
    words[0] |= bits << shift;
    if (shift + length > 64) words[1] |= bits >> (64 - shift);
  }
}

std::vector<WorkerMatch> MatchQuery::Answers() const {
  std::vector<WorkerMatch> answers;
  answers.reserve(scratch_.asked.size());
  for (const Asked& asked : scratch_.asked) {
    if (asked.rules->unit != shape_.unit && asked.rules->unit != 0) continue;
    answers.push_back(Answer(asked));
    answers.back().certain = asked.certain;
  }
  return answers;
}

WorkerMatch MatchQuery::Answer(const Asked& asked) const {
  if (asked.first_mark == kNone && asked.rules->nothing_without_blocks) {
    WorkerMatch nothing;
    nothing.worker = asked.rules->id;
    nothing.recompute_tokens = shape_.prompt_tokens;
    nothing.per_group_tokens.assign(asked.rules->groups.size(), 0);
    return nothing;
  }
  if (asked.rules->leading_run && shape_.policy == MatchPolicy::kExact) {
    bool gpu_only = true;
    for (uint32_t mark = asked.first_mark; mark != kNone; mark = scratch_.marks[mark].next) {
      gpu_only = gpu_only && scratch_.marks[mark].tier == Tier::kGpu;
    }
    if (gpu_only) return LeadingRun(asked);
  }
  MatchPlan plan(*asked.rules, shape_);
  for (uint32_t mark = asked.first_mark; mark != kNone; mark = scratch_.marks[mark].next) {
    plan.Mark(scratch_.marks[mark].group, scratch_.marks[mark].tier, WordsOf(mark));
  }
  return plan.Evaluate();
}

// What MatchPlan would say where WorkerRules::leading_run holds and nothing lies on lower tiers.
WorkerMatch MatchQuery::LeadingRun(const Asked& asked) const {
  const WorkerRules& rules = *asked.rules;
  size_t groups = 0;
  int64_t run = shape_.units;
  for (uint32_t mark = asked.first_mark; mark != kNone; mark = scratch_.marks[mark].next) {
    const std::span<const uint64_t> words = WordsOf(mark);
    size_t w = 0;
    while (w < words.size() && words[w] == ~uint64_t{0}) ++w;
    const int ones = w < words.size() ? std::countr_one(words[w]) : 0;
    run = std::min(run, static_cast<int64_t>(w) * 64 + ones);
    ++groups;
  }
  if (groups < rules.groups.size()) run = 0;
  WorkerMatch match;
  match.worker = rules.id;
  match.gpu_tokens = run * rules.unit / rules.alignment * rules.alignment;
  match.with_cpu_tokens = match.with_storage_tokens = match.gpu_tokens;
  match.recompute_tokens = shape_.prompt_tokens - match.gpu_tokens;
  match.per_group_tokens.assign(rules.groups.size(), match.gpu_tokens);
  const int64_t most = shape_.units * shape_.unit / rules.alignment * rules.alignment;
  match.hit = match.gpu_tokens == 0      ? HitKind::kMiss
              : match.gpu_tokens == most ? HitKind::kFull
                                         : HitKind::kPartial;
  return match;
}

}  // namespace kvcast::router
