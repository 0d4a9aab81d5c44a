// SPDX-License-Identifier: Apache-2.0
#include "router/index/match_query.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace kvcast::router {

// Keeps its memory from query to query. A query therefore allocates memory only for its answer.
struct MatchQuery::Scratch {
  std::vector<Asked> asked;
  // By slot: the class of a queried worker. kNoClass: the worker is not queried, or is settled.
  // Between queries, all entries are kNoClass.
  std::vector<ClassId> class_of_slot;
  // By slot, in ReadLeading: the number of leading blocks found so far. kNotRead: the worker is not
  // queried, or is settled. Between readings, all entries are kNotRead.
  std::vector<uint32_t> leading_of_slot;
  size_t leading_reached = 0;     // in ReadLeading: the end of the stretches so far
  uint32_t leading_pause = 0;     // queries without ReadLeading, because it failed before
  uint32_t leading_failures = 0;  // since it succeeded
  HoldingClasses classes;
  ClassAnswers answers;

  ClassId& At(WorkerSlot slot) {
    if (slot >= class_of_slot.size()) {
      class_of_slot.resize(std::max<size_t>(slot + size_t{1}, 2 * class_of_slot.size()), kNoClass);
    }
    return class_of_slot[slot];
  }
};

inline ClassId MatchQuery::ClassOf(const Asked& asked) const {
  return asked.settled != kNoClass ? asked.settled : scratch_.class_of_slot[asked.view->slot];
}

namespace {

// Returns the version. If it is odd, waits a short time for an even version. A version is odd for
// well under a microsecond, unless the writer is interrupted.
uint64_t EvenVersion(const WorkerView& view) {
  constexpr int kTries = 100;
  // I1
  uint64_t version = view.version.load(std::memory_order_acquire);
  for (int i = 0; i < kTries && version % 2 != 0; ++i) {
    version = view.version.load(std::memory_order_acquire);
  }
  return version;
}

constexpr uint32_t kNotRead = ~uint32_t{0};
constexpr uint16_t kGpuOfGroup0 = uint16_t{0} << 8 | uint16_t{static_cast<uint8_t>(Tier::kGpu)};

template <typename T>
std::span<const T> FirstUnits(std::span<const T> all, const QueryShape& shape) {
  return all.first(std::min(all.size(), static_cast<size_t>(shape.prompt_units)));
}

}  // namespace

MatchQuery::Scratch& MatchQuery::ThreadScratch() {
  static thread_local Scratch scratch;
  return scratch;
}

MatchQuery::MatchQuery(const ResidencyMap& map, const PlaceTable& places,
                       const PromptBlocks& prompt, const QueryShape& shape, Detail detail)
    : map_(map),
      places_(places),
      contents_(FirstUnits(prompt.contents, shape)),
      chain_(FirstUnits(prompt.hashes, shape)),
      integers_(chain_.empty() ? FirstUnits(prompt.integer_hashes, shape)
                               : std::span<const uint64_t>()),
      shape_(shape),
      detail_(detail),
      scratch_(ThreadScratch()) {
  scratch_.classes.Clear();
}

MatchQuery::~MatchQuery() {
  for (const Asked& asked : scratch_.asked) scratch_.At(asked.view->slot) = kNoClass;
  scratch_.asked.clear();
}

void MatchQuery::Ask(const WorkerView& worker) {
  constexpr ClassId kAsked = 0;  // BeginReading sets the class
  if (std::exchange(scratch_.At(worker.slot), kAsked) == kNoClass) {
    scratch_.asked.push_back({.view = &worker});
  }
}

void MatchQuery::AskAll(std::span<const WorkerView* const> workers) {
  scratch_.asked.reserve(workers.size());
  for (const WorkerView* worker : workers) scratch_.asked.push_back({.view = worker});
}

MatchQuery::Shortcuts MatchQuery::BeginReading() {
  // A worker that needs the leading run of blocks, with one block per chunk, cannot use a block
  // behind the first gap. If its untold properties may matter, it matters whether it holds any
  // block, so its leading blocks do not decide.
  const bool exact = shape_.policy == MatchPolicy::kExact;
  Shortcuts shortcuts = {.until_gap = exact, .leading = exact && !has_chain()};
  HoldingClasses::Root last;
  ClassId empty = kNoClass;
  constexpr size_t kAhead = 8;
  const std::span<Asked> all(scratch_.asked);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i + kAhead < all.size()) __builtin_prefetch(all[i + kAhead].view);
    Asked& asked = all[i];
    if (asked.settled != kNoClass) continue;
    // I1: the acquire load of the version comes before all loads of the worker's data. I2: these
    // loads are acquire loads, so they come before the second load of the version in EndReading.
    const WorkerView& view = *asked.view;
    asked.version = EvenVersion(view);
    asked.unnamed = view.unnamed.load(std::memory_order_acquire);
    const HoldingClasses::Root root = {.rules = view.rules.load(std::memory_order_acquire),
                                       .ambiguous = view.ambiguous.load(std::memory_order_acquire),
                                       .certain = view.certain.load(std::memory_order_acquire),
                                       .has_unnamed = asked.unnamed % 2 != 0,
                                       .has_unnamed_gpu = asked.unnamed >= 2};
    if (empty == kNoClass || root != last) {
      last = root;
      empty = scratch_.classes.ClassOf(root);
      const WorkerRules& rules = *root.rules;
      shortcuts.until_gap &= rules.leading_run && rules.blocks_per_chunk == 1;
      shortcuts.leading &= shortcuts.until_gap && rules.groups.size() == 1 && rules.untold == 0 &&
                           (detail_ == Detail::kScores ||
                            (rules.untold_with_cpu & ~uint32_t(Untold::kOffloadRule)) == 0);
    }
    scratch_.At(view.slot) = empty;
  }
  scratch_.classes.BeginWalk();
  return shortcuts;
}

bool MatchQuery::Read() {
  const Shortcuts shortcuts = BeginReading();
  // Without a hash chain, the query finds no blocks by hash that could fill a gap.
  if (!contents_.empty() && !(shortcuts.leading && ReadLeading(shortcuts.until_gap))) {
    ReadContents(!has_chain() && shortcuts.until_gap);
  }
  if (has_chain()) ReadHashes(contents_.empty() && shortcuts.until_gap);
  return EndReading();
}

void MatchQuery::ReadContents(bool until_gap) {
  map_.WalkContents(contents_, shape_.unit, until_gap, [&](const ResidencyMap::Piece& piece) {
    Collect(*piece.holders, 0, {piece.position, piece.length, piece.step, false});
  });
}

bool MatchQuery::ReadLeading(bool until_gap) {
  constexpr uint32_t kMostPause = 64;
  if (scratch_.leading_pause > 0) {
    --scratch_.leading_pause;
    return false;
  }
  std::vector<uint32_t>& leading = scratch_.leading_of_slot;
  leading.resize(std::max(leading.size(), scratch_.class_of_slot.size()), kNotRead);
  for (const Asked& asked : scratch_.asked) {
    if (asked.settled == kNoClass) leading[asked.view->slot] = 0;
  }
  scratch_.leading_reached = 0;
  bool decides = true;
  map_.WalkContents(contents_, shape_.unit, until_gap, [&](const ResidencyMap::Piece& piece) {
    decides = decides && CollectLeading(piece);
  });
  if (decides) scratch_.classes.BeginLeading();
  for (const Asked& asked : scratch_.asked) {
    if (asked.settled != kNoClass) continue;
    const uint32_t blocks = std::exchange(leading[asked.view->slot], kNotRead);
    ClassId& holding = scratch_.class_of_slot[asked.view->slot];
    if (decides && blocks > 0) holding = scratch_.classes.With(holding, kGpuOfGroup0, blocks);
  }
  scratch_.leading_failures = decides ? 0 : std::min(2 * scratch_.leading_failures + 1, kMostPause);
  scratch_.leading_pause = scratch_.leading_failures;
  return decides;
}

// Without overlaps, no later stretch can fill a gap.
bool MatchQuery::CollectLeading(const ResidencyMap::Piece& piece) {
  if (piece.step != 1 || piece.position < scratch_.leading_reached) return false;
  scratch_.leading_reached = piece.position + piece.length;
  const HolderSet& holders = *piece.holders;
  const uint64_t mask = BitRange(0, piece.length);
  const uint32_t size = holders.size();
  const PlaceTable::Words places = places_.words();
  const std::span<uint32_t> leading(scratch_.leading_of_slot);
  for (uint32_t i = 0; i < size; ++i) {
    const uint64_t bits = holders.bits(i) & mask;
    if (bits == 0) continue;
    const uint64_t place = places.At(holders.place(i));
    const uint64_t slot = PlaceTable::SlotOf(place);
    if (slot >= leading.size() || leading[slot] == kNotRead) continue;  // closed, or not queried
    if (PlaceTable::KindOf(place) != kGpuOfGroup0) {
      if (detail_ == Detail::kAll) return false;
      continue;
    }
    if (leading[slot] == piece.position) {
      leading[slot] += static_cast<uint32_t>(std::countr_one(bits));
    }
  }
  return true;
}

// If contents are given too, the walk by hash reads only unnamed blocks. These may fill the gaps
// between the blocks that were found by content.
void MatchQuery::ReadHashes(bool until_gap) {
  const bool unnamed_only = !contents_.empty();
  const auto collect = [&](const HolderSet& holders, uint32_t offset, size_t position,
                           uint32_t length) {
    Collect(holders, offset, {position, length, 1, true});
  };
  if (chain_.empty()) return map_.WalkHashes(integers_, until_gap, unnamed_only, collect);
  map_.WalkHashes(chain_, until_gap, unnamed_only, collect);
}

bool MatchQuery::EndReading() {
  const auto is_settled = [](const Asked& asked) {
    // I1, I2
    return asked.settled != kNoClass ||
           (asked.version % 2 == 0 &&
            asked.view->version.load(std::memory_order_acquire) == asked.version);
  };
  if (std::all_of(scratch_.asked.begin(), scratch_.asked.end(), is_settled)) return true;
  for (Asked& asked : scratch_.asked) {
    if (asked.settled != kNoClass || !is_settled(asked)) continue;
    asked.settled = std::exchange(scratch_.At(asked.view->slot), kNoClass);
  }
  return false;
}

void MatchQuery::Collect(const HolderSet& holders, uint32_t offset,
                         const HoldingClasses::Stretch& stretch) {
  HoldingClasses& classes = scratch_.classes;
  classes.Begin(stretch);
  const uint64_t mask = BitRange(0, stretch.length);
  const uint32_t size = holders.size();
  const PlaceTable::Words places = places_.words();
  const std::span<ClassId> class_of_slot(scratch_.class_of_slot);
  for (uint32_t i = 0; i < size; ++i) {
    const uint64_t bits = holders.bits(i) >> offset & mask;
    if (bits == 0) continue;
    const uint64_t place = places.At(holders.place(i));
    const uint64_t slot = PlaceTable::SlotOf(place);
    if (slot >= class_of_slot.size()) continue;  // closed, or not queried
    ClassId& holding = class_of_slot[slot];
    if (holding == kNoClass) continue;
    const uint16_t kind = PlaceTable::KindOf(place);
    if (detail_ == Detail::kScores && static_cast<Tier>(kind & 0xFF) != Tier::kGpu) continue;
    holding = classes.With(holding, kind, bits);
  }
}

std::vector<WorkerMatch> MatchQuery::Answers() const {
  ClassAnswers& of_classes = scratch_.answers;
  of_classes.Begin(scratch_.classes, shape_, contents_);
  std::vector<WorkerMatch> answers;
  answers.reserve(scratch_.asked.size());
  for (const Asked& asked : scratch_.asked) {
    const WorkerMatch* const match = of_classes.Of(ClassOf(asked));
    if (match == nullptr) continue;
    WorkerMatch& answer = answers.emplace_back(*match);
    answer.worker = asked.view->id;
    answer.unnamed_gpu = asked.unnamed / 2;
  }
  return answers;
}

std::vector<WorkerScore> MatchQuery::Scores() const {
  ClassAnswers& of_classes = scratch_.answers;
  of_classes.Begin(scratch_.classes, shape_, contents_);
  std::vector<WorkerScore> scores;
  scores.reserve(scratch_.asked.size());
  const bool finds_unnamed = has_chain();
  WorkerScore score;
  ClassId last = kNoClass;
  for (const Asked& asked : scratch_.asked) {
    const ClassId id = ClassOf(asked);
    if (id != last) {
      last = id;
      const WorkerMatch* const match = of_classes.Of(id);
      score.gpu_tokens = match == nullptr ? 0 : match->gpu_tokens;
      score.exact = match != nullptr && match->certain && !match->ambiguous && match->untold == 0 &&
                    (finds_unnamed || match->unnamed_gpu == 0);
    }
    if (score.gpu_tokens == 0) continue;
    score.worker = asked.view->id;
    scores.push_back(score);
  }
  return scores;
}

MatchPlan MatchQuery::Plan() const {
  scratch_.answers.Begin(scratch_.classes, shape_, contents_);
  return scratch_.answers.PlanOf(ClassOf(scratch_.asked.front()));
}

}  // namespace kvcast::router
