// SPDX-License-Identifier: Apache-2.0
#include "router/index/match_query.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace kvcast::router {

// Kept from query to query, so that a query allocates memory only for its answer. The tables by
// slot and by place are not cleared. An entry is valid if it has the stamp of the current reading.
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
  std::vector<ResidencyMap::Piece> pieces;
  std::vector<uint64_t> seen;  // by queried worker: positions that an earlier piece has

  static Stamped& At(std::vector<Stamped>& table, size_t i) {
    if (i >= table.size()) table.resize(std::max(i + 1, 2 * table.size()));
    return table[i];
  }
};

namespace {

// Showing a batch or moving a run takes well under a microsecond. If a version stays odd for
// longer, the writer was interrupted.
uint64_t EvenVersion(const WorkerView& view) {
  constexpr int kTries = 100;
  // I1
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
                       const PromptBlocks& prompt, const QueryShape& shape)
    : map_(map),
      places_(places),
      contents_(prompt.contents.first(
          std::min(prompt.contents.size(), static_cast<size_t>(shape.prompt_units)))),
      chain_(prompt.hashes.first(
          std::min(prompt.hashes.size(), static_cast<size_t>(shape.prompt_units)))),
      shape_(shape),
      words_((static_cast<size_t>(shape.prompt_units) + 63) / 64),
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

// True if no queried worker can use a block behind the first gap: all of them need the leading run
// of blocks, with one block per chunk.
bool MatchQuery::UntilGap() const {
  if (shape_.policy != MatchPolicy::kExact) return false;
  return std::all_of(scratch_.asked.begin(), scratch_.asked.end(), [](const Asked& asked) {
    return asked.settled || (asked.rules->leading_run && asked.rules->blocks_per_chunk == 1);
  });
}

bool MatchQuery::Read() {
  // The first reading uses the stamps that Ask wrote.
  const bool again = std::exchange(has_read_, true);
  if (again) ++scratch_.stamp;
  for (uint32_t i = 0; i < scratch_.asked.size(); ++i) {
    Asked& asked = scratch_.asked[i];
    if (asked.settled) continue;
    // I1: the acquire load of the version comes before all loads of the worker's data. I2: those
    // are acquire loads, so they come before the second load of the version below.
    asked.version = EvenVersion(*asked.view);
    asked.rules = asked.view->rules.load(std::memory_order_acquire);
    asked.certain = asked.view->certain.load(std::memory_order_acquire);
    asked.unnamed = asked.view->unnamed.load(std::memory_order_acquire);
    asked.ambiguous_names = asked.view->ambiguous.load(std::memory_order_acquire);
    asked.ambiguous = false;
    asked.unnamed_units = 0;
    asked.first_mark = kNone;
    if (again) Scratch::At(scratch_.asked_of_slot, asked.view->slot) = {scratch_.stamp, i};
  }
  if (!contents_.empty()) CollectContents();
  if (!chain_.empty()) {
    // If contents are given too, blocks that are found by hash may fill the gaps between blocks
    // that are found by content.
    const bool until_gap = contents_.empty() && UntilGap();
    map_.WalkHashes(
        chain_, until_gap, !contents_.empty(),
        [&](const HolderSet& holders, uint32_t offset, size_t position, uint32_t length) {
          Collect(holders, offset, position, length);
          if (!contents_.empty()) NoteUnnamed(holders, offset, position, length);
        });
  }
  bool all = true;
  for (Asked& asked : scratch_.asked) {
    if (asked.settled) continue;
    // I1, I2
    asked.settled = asked.version % 2 == 0 &&
                    asked.view->version.load(std::memory_order_acquire) == asked.version;
    all = all && asked.settled;
  }
  return all;
}

// Returns the mark of the place in this reading; kNone: its worker is not queried.
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

void MatchQuery::NoteUnnamed(const HolderSet& holders, uint32_t offset, size_t position,
                             uint32_t length) {
  const uint32_t size = holders.size();
  for (uint32_t i = 0; i < size; ++i) {
    const uint64_t bits = holders.bits(i) >> offset & BitRange(0, length);
    const uint32_t mark = bits == 0 ? kNone : MarkOf(holders.place(i));
    if (mark == kNone) continue;
    size_t& units = scratch_.asked[scratch_.marks[mark].asked].unnamed_units;
    units = std::max(units, position + static_cast<size_t>(std::bit_width(bits)));
  }
}

// Like Collect, for blocks of several units.
void MatchQuery::CollectSpread(const ResidencyMap::Piece& piece) {
  for (uint32_t i = 0; i < piece.length; ++i) {
    Collect(*piece.holders, i, piece.position + i * size_t{piece.step}, 1);
  }
}

void MatchQuery::CollectContents() {
  scratch_.pieces.clear();
  size_t reached = 0;
  bool overlap = false;
  // Without a chain no other block fills a gap.
  map_.WalkContents(
      contents_, shape_.unit, chain_.empty() && UntilGap(), [&](const ResidencyMap::Piece& piece) {
        overlap = overlap || piece.position < reached;
        reached = std::max(reached, piece.position + piece.length * size_t{piece.step});
        scratch_.pieces.push_back(piece);
      });
  for (const ResidencyMap::Piece& piece : scratch_.pieces) {
    if (piece.step == 1) {
      Collect(*piece.holders, 0, piece.position, piece.length);
    } else {
      CollectSpread(piece);
    }
  }
  if (overlap) FindAmbiguities();
  DropAmbiguous();
}

// If a worker has bits in two runs for one position, it holds two hashes of that content, unless
// the blocks have different sizes.
void MatchQuery::FindAmbiguities() {
  std::vector<std::pair<uint32_t, size_t>> found;  // queried worker and position
  std::vector<uint32_t> strides;
  for (const ResidencyMap::Piece& piece : scratch_.pieces) strides.push_back(piece.step);
  std::sort(strides.begin(), strides.end());
  strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
  for (const uint32_t step : strides) {
    scratch_.seen.assign(scratch_.asked.size() * words_, 0);
    struct Word {
      uint32_t asked;
      size_t index;  // word of the prompt's positions
      uint64_t bits;
    };
    std::vector<Word> own;  // bits of the current piece
    const auto note = [&](uint32_t asked, size_t index, uint64_t bits) {
      if (bits == 0) return;
      own.push_back({asked, index, bits});
      for (uint64_t both = scratch_.seen[asked * words_ + index] & bits; both != 0;
           both &= both - 1) {
        found.emplace_back(asked, index * 64 + static_cast<size_t>(std::countr_zero(both)));
      }
    };
    for (const ResidencyMap::Piece& piece : scratch_.pieces) {
      if (piece.step != step) continue;
      own.clear();
      const uint32_t size = piece.holders->size();
      for (uint32_t i = 0; i < size; ++i) {
        uint64_t bits = piece.holders->bits(i) & BitRange(0, piece.length);
        if (bits == 0) continue;
        const uint32_t mark = MarkOf(piece.holders->place(i));
        if (mark == kNone) continue;
        const uint32_t asked = scratch_.marks[mark].asked;
        if (step == 1) {
          const size_t shift = piece.position % 64;
          note(asked, piece.position / 64, bits << shift);
          if (shift != 0) note(asked, piece.position / 64 + 1, bits >> (64 - shift));
          continue;
        }
        for (; bits != 0; bits &= bits - 1) {
          const size_t position =
              piece.position + static_cast<size_t>(std::countr_zero(bits)) * step;
          note(asked, position / 64, uint64_t{1} << position % 64);
        }
      }
      for (const Word& word : own) scratch_.seen[word.asked * words_ + word.index] |= word.bits;
    }
  }
  for (const auto& [asked, position] : found) Drop(scratch_.asked[asked], position);
}

// A block with contradicting names does not count.
void MatchQuery::Drop(Asked& asked, size_t position) {
  asked.ambiguous = true;
  for (uint32_t mark = asked.first_mark; mark != kNone; mark = scratch_.marks[mark].next) {
    scratch_.words[mark * words_ + position / 64] &= ~(uint64_t{1} << position % 64);
  }
}

void MatchQuery::DropAmbiguous() {
  for (Asked& asked : scratch_.asked) {
    if (asked.settled || asked.ambiguous_names == nullptr) continue;
    for (size_t i = 0; i < contents_.size(); ++i) {
      if (asked.ambiguous_names->HasContent(contents_[i])) Drop(asked, i);
    }
  }
}

std::vector<WorkerMatch> MatchQuery::Answers() const {
  std::vector<WorkerMatch> answers;
  answers.reserve(scratch_.asked.size());
  RunAnswer last;
  for (const Asked& asked : scratch_.asked) {
    if (asked.rules->unit != shape_.unit && asked.rules->unit != 0) continue;
    WorkerMatch& match = answers.emplace_back();
    Answer(asked, last, match);
    match.certain = asked.certain;
    match.ambiguous = asked.ambiguous;
    match.unnamed_gpu = asked.unnamed / 2;
    match.unnamed_units = static_cast<int64_t>(asked.unnamed_units);
    match.has_unnamed = asked.unnamed % 2 != 0;
    match.untold = UntoldOf(asked, match);
    constexpr auto kRuleOnly = uint32_t(Untold::kOffloadRule);
    const uint32_t untold_with_cpu = asked.rules->untold_with_cpu;
    match.untold_with_cpu |=
        (untold_with_cpu & ~kRuleOnly) == 0 ? untold_with_cpu : UntoldOfLoads(asked, match);
  }
  return answers;
}

// Returns the unknown properties of the worker that could change the answer.
uint32_t MatchQuery::UntoldOf(const Asked& asked, const WorkerMatch& match) const {
  uint32_t untold = asked.rules->untold;
  if (untold == 0) return 0;
  // If the worker holds no block of the prompt, the answer is 0 for every kind except chunked
  // attention.
  if (asked.first_mark == kNone && asked.rules->nothing_without_blocks) return 0;
  const auto drop = [&untold](Untold property) { untold &= ~static_cast<uint32_t>(property); };
  // These properties can only shorten a hit. The exception is a prompt that ends with a unit: an
  // engine that drops a block then looks at that unit too.
  if (match.gpu_tokens == 0) {
    drop(Untold::kReplay);
    if (shape_.prompt_units == shape_.units) {
      drop(Untold::kGroups);
      drop(Untold::kEagle);
    }
  }
  if (asked.rules->shortest_hit > 0 && match.gpu_tokens >= asked.rules->shortest_hit) {
    drop(Untold::kReplay);
  }
  // A group of unknown size is evaluated as if it needed every block. The answer can therefore only
  // be too small.
  if (match.hit == HitKind::kFull) {
    drop(Untold::kWindow);
    drop(Untold::kChunkSize);
  }
  // A hit that ends where blocks end is the same with either alignment, unless a part of it was
  // dropped.
  const bool drops = std::any_of(asked.rules->groups.begin(), asked.rules->groups.end(),
                                 [](const GroupSpec& group) { return group.eagle; });
  const int64_t aligned = asked.rules->block_alignment;
  if (!drops && (match.gpu_tokens == 0 || (aligned > 0 && match.gpu_tokens % aligned == 0))) {
    drop(Untold::kAlignment);
  }
  // The releases differ only for a prompt that ends with a unit.
  if (shape_.prompt_units == shape_.units) drop(Untold::kRelease);
  return untold;
}

// Like UntoldOf, for the prefix that is served after loads. `match`: its untold is set. REQUIRES: a
// property other than the offload rule is unknown.
uint32_t MatchQuery::UntoldOfLoads(const Asked& asked, const WorkerMatch& match) const {
  const WorkerRules& rules = *asked.rules;
  if (!rules.nothing_without_blocks) return rules.untold_with_cpu;
  // If no lower tier holds a block of the prompt, no rule loads any.
  bool lower = false;
  for (uint32_t mark = asked.first_mark; mark != kNone; mark = scratch_.marks[mark].next) {
    lower = lower || scratch_.marks[mark].tier == Tier::kCpu;
  }
  if (lower) return rules.untold_with_cpu;
  return match.untold | (rules.untold_with_cpu & uint32_t(Untold::kOffloadRule));
}

void MatchQuery::Answer(const Asked& asked, RunAnswer& last, WorkerMatch& match) const {
  if (asked.first_mark == kNone && asked.rules->nothing_without_blocks) {
    match.worker = asked.rules->id;
    match.recompute_tokens = shape_.prompt_tokens;
    match.per_group_tokens.assign(asked.rules->groups.size(), 0);
    return;
  }
  if (asked.rules->leading_run && shape_.policy == MatchPolicy::kExact) {
    if (LeadingRun(asked, last, match)) return;
  }
  match = PlanOf(asked).Evaluate();
}

MatchPlan MatchQuery::PlanOf(const Asked& asked) const {
  MatchPlan plan(*asked.rules, shape_);
  for (uint32_t mark = asked.first_mark; mark != kNone; mark = scratch_.marks[mark].next) {
    plan.Mark(scratch_.marks[mark].group, scratch_.marks[mark].tier, WordsOf(mark));
  }
  return plan;
}

MatchPlan MatchQuery::Plan() const { return PlanOf(scratch_.asked.front()); }

MatchQuery::RunAnswer MatchQuery::AnswerOf(const WorkerRules& rules, int64_t run) const {
  RunAnswer answer{.unit = rules.unit, .alignment = rules.alignment, .run = run};
  answer.tokens = run * rules.unit / rules.alignment * rules.alignment;
  const int64_t most = shape_.units * shape_.unit / rules.alignment * rules.alignment;
  answer.hit = answer.tokens == 0      ? HitKind::kMiss
               : answer.tokens == most ? HitKind::kFull
                                       : HitKind::kPartial;
  return answer;
}

// The result of MatchPlan for workers with WorkerRules::leading_run. False: a lower tier holds a
// block.
bool MatchQuery::LeadingRun(const Asked& asked, RunAnswer& last, WorkerMatch& match) const {
  const WorkerRules& rules = *asked.rules;
  size_t groups = 0;
  int64_t run = shape_.units;
  for (uint32_t mark = asked.first_mark; mark != kNone; mark = scratch_.marks[mark].next) {
    if (scratch_.marks[mark].tier != Tier::kGpu) return false;
    const std::span<const uint64_t> words = WordsOf(mark);
    size_t w = 0;
    while (w < words.size() && words[w] == ~uint64_t{0}) ++w;
    const int ones = w < words.size() ? std::countr_one(words[w]) : 0;
    run = std::min(run, static_cast<int64_t>(w) * 64 + ones);
    ++groups;
  }
  if (groups < rules.groups.size()) run = 0;
  // Most workers of a fleet have equal results, and divisions are slow.
  if (last.run != run || last.unit != rules.unit || last.alignment != rules.alignment) {
    last = AnswerOf(rules, run);
  }
  match.worker = rules.id;
  match.gpu_tokens = match.with_cpu_tokens = match.with_storage_tokens = last.tokens;
  match.recompute_tokens = shape_.prompt_tokens - last.tokens;
  match.per_group_tokens.assign(rules.groups.size(), last.tokens);
  match.hit = last.hit;
  return true;
}

}  // namespace kvcast::router
