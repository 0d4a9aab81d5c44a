// SPDX-License-Identifier: Apache-2.0
#include "router/index/match_query.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <utility>

namespace kvcast::router {

// The workers of a roster, with the properties that a thread read most recently.
struct MatchQuery::Fleet {
  static constexpr uint32_t kNotAsked = ~uint32_t{0};

  uint64_t roster = 0;   // number of the roster; 0: nothing was read
  uint64_t seen = 0;     // `asked` has the effects of all changes with a lower number (I12)
  bool odd = false;      // a version in `asked` is odd
  bool settled = false;  // Asked::settled or Asked::leading is set
  Shortcuts shortcuts;
  std::vector<Asked> asked;
  std::vector<uint32_t> asked_of_slot;    // index into `asked`; kNotAsked: no worker
  std::vector<ClassId> class_of_slot;     // kNoClass: none
  std::vector<uint32_t> leading_of_slot;  // 0, or kNotLed if the slot has no worker
};

// Keeps its memory from query to query. A query therefore allocates memory only for its answer.
struct MatchQuery::Scratch {
  Fleet fleet;  // its classes are in `classes`
  std::vector<Asked> asked;
  // By slot: the class of a queried worker. kNoClass: the worker is not queried, or is settled.
  std::vector<ClassId> class_of_slot;
  // By slot, in ReadLeading: the number of leading blocks found so far. kNotLed: the worker is not
  // queried, or is settled.
  std::vector<uint32_t> leading_of_slot;
  size_t leading_reached = 0;        // in ReadLeading: the end of the stretches so far
  struct {                           // in ReadLeading
    const HolderSet* set = nullptr;  // of the latest stretch; nullptr: too many holders
    uint32_t size = 0;               // holders of the set
    uint64_t leads = 0;    // bit i: the worker of holder i holds all blocks of the prompt so far
    uint64_t useless = 0;  // bit i: no later block of holder i can change the answer
    uint32_t pending = 0;  // blocks to add to leading_of_slot of the workers in `leads`
  } lead;
  uint32_t leading_pause = 0;     // number of next queries that skip ReadLeading
  uint32_t leading_failures = 0;  // latest leading_pause, in queries; 0 after a success
  HoldingClasses classes;
  ClassAnswers answers;

  ClassId& At(WorkerSlot slot) {
    if (slot >= class_of_slot.size()) {
      class_of_slot.resize(std::max<size_t>(slot + size_t{1}, 2 * class_of_slot.size()), kNoClass);
      leading_of_slot.resize(class_of_slot.size(), kNotLed);
    }
    return class_of_slot[slot];
  }
};

inline ClassId MatchQuery::BaseOf(const Asked& asked) const {
  return asked.settled != kNoClass ? asked.settled : scratch_.class_of_slot[asked.slot];
}

inline uint32_t MatchQuery::LeadingOf(const Asked& asked) const {
  if (asked.settled != kNoClass) return asked.leading;
  return led_ ? scratch_.leading_of_slot[asked.slot] : kNotLed;
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

// I1, I2
template <typename Asked>
bool Unchanged(const Asked& asked) {
  return asked.version % 2 == 0 &&
         asked.view->version.load(std::memory_order_acquire) == asked.version;
}

constexpr uint16_t kGpuOfGroup0 = uint16_t{0} << 8 | uint16_t{static_cast<uint8_t>(Tier::kGpu)};

template <typename T>
std::span<const T> FirstUnits(std::span<const T> all, const QueryShape& shape) {
  return all.first(std::min(all.size(), static_cast<size_t>(shape.prompt_units)));
}

}  // namespace

MatchQuery::Scratch& MatchQuery::ThreadScratch(size_t memory) {
  static thread_local std::array<std::unique_ptr<Scratch>, kMaxIndexShards> scratches;
  std::unique_ptr<Scratch>& scratch = scratches[memory];
  if (!scratch) scratch = std::make_unique<Scratch>();
  return *scratch;
}

MatchQuery::MatchQuery(const ResidencyMap& map, const HolderTable& holder_table,
                       const PromptBlocks& prompt, const QueryShape& shape, Detail detail,
                       size_t memory)
    : map_(map),
      holder_table_(holder_table),
      contents_(FirstUnits(prompt.contents, shape)),
      chain_(FirstUnits(prompt.hashes, shape)),
      integers_(chain_.empty() ? FirstUnits(prompt.integer_hashes, shape)
                               : std::span<const uint64_t>()),
      shape_(shape),
      detail_(detail),
      scratch_(ThreadScratch(memory)),
      asked_(&scratch_.asked) {
  if (!chain_.empty()) map_.Prefetch(chain_[0]);
  if (!integers_.empty()) map_.Prefetch(BlockHash::FromUnsigned(integers_[0]));
}

MatchQuery::~MatchQuery() { scratch_.asked.clear(); }

void MatchQuery::Ask(const WorkerView& worker) {
  constexpr ClassId kAsked = 0;  // BeginReading sets the class
  if (asked_->empty()) {
    scratch_.fleet.roster = 0;
    scratch_.classes.Clear();
    std::ranges::fill(scratch_.class_of_slot, kNoClass);
    std::ranges::fill(scratch_.leading_of_slot, kNotLed);
  }
  if (std::exchange(scratch_.At(worker.slot), kAsked) == kNoClass) {
    asked_->push_back({.view = &worker, .id = worker.id, .slot = worker.slot});
  }
}

void MatchQuery::AskAll(std::span<const WorkerView* const> workers, uint64_t roster) {
  Fleet& fleet = scratch_.fleet;
  if (std::exchange(fleet.settled, false)) {
    for (Asked& asked : fleet.asked) asked.settled = kNoClass;
  }
  if (!UpdateFleet(roster)) ReadFleet(workers, roster);
  scratch_.class_of_slot = fleet.class_of_slot;
  scratch_.leading_of_slot = fleet.leading_of_slot;
  asked_ = &fleet.asked;
  of_fleet_ = true;
}

void MatchQuery::Restrict(Shortcuts& shortcuts, const WorkerRules& rules) {
  // A worker that needs the leading run of blocks, with one block per chunk, cannot use a block
  // behind the first gap. If unknown properties of a worker may matter, its answer also depends on
  // whether it holds any block. Its number of leading blocks then does not decide the answer.
  constexpr auto kRuleOnly = static_cast<uint32_t>(UnknownProperty::kOffloadRule);
  shortcuts.until_gap &= rules.leading_run && rules.blocks_per_chunk == 1;
  shortcuts.leading_score &= shortcuts.until_gap && rules.groups.size() == 1 && rules.unknown == 0;
  shortcuts.leading_answer &= shortcuts.leading_score && (rules.unknown_with_cpu & ~kRuleOnly) == 0;
}

inline ClassId MatchQuery::ReadRoot(Asked& asked, Shortcuts& shortcuts) {
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
  Restrict(shortcuts, *root.rules);
  return scratch_.classes.ClassOf(root);
}

void MatchQuery::ReadFleet(std::span<const WorkerView* const> workers, uint64_t roster) {
  Fleet& fleet = scratch_.fleet;
  scratch_.classes.Clear();
  fleet.seen = holder_table_.changes().ended();  // I12: before the versions
  fleet.roster = roster;
  fleet.odd = false;
  fleet.shortcuts = {};
  fleet.asked.clear();
  std::ranges::fill(fleet.asked_of_slot, Fleet::kNotAsked);
  std::ranges::fill(fleet.class_of_slot, kNoClass);
  std::ranges::fill(fleet.leading_of_slot, kNotLed);
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (i + kAhead < workers.size()) __builtin_prefetch(workers[i + kAhead]);
    Asked& asked = fleet.asked.emplace_back();
    asked.view = workers[i];
    asked.id = asked.view->id;
    const WorkerSlot slot = asked.slot = asked.view->slot;
    if (slot >= fleet.asked_of_slot.size()) {
      const size_t size = std::max<size_t>(slot + size_t{1}, 2 * fleet.asked_of_slot.size());
      fleet.asked_of_slot.resize(size, Fleet::kNotAsked);
      fleet.class_of_slot.resize(size, kNoClass);
      fleet.leading_of_slot.resize(size, kNotLed);
    }
    fleet.asked_of_slot[slot] = static_cast<uint32_t>(i);
    fleet.class_of_slot[slot] = ReadRoot(asked, fleet.shortcuts);
    fleet.leading_of_slot[slot] = 0;
    fleet.odd |= asked.version % 2 != 0;
  }
}

bool MatchQuery::UpdateFleet(uint64_t roster) {
  Fleet& fleet = scratch_.fleet;
  if (fleet.roster != roster || fleet.odd) return false;
  scratch_.classes.ClearWalks();
  const ChangeLog& changes = holder_table_.changes();
  const uint64_t ended = changes.ended();  // I12: before the versions
  bool same = true;
  const bool all = changes.ForEach(fleet.seen, ended, [&](WorkerSlot slot) {
    if (slot >= fleet.asked_of_slot.size() || fleet.asked_of_slot[slot] == Fleet::kNotAsked) return;
    Asked& asked = fleet.asked[fleet.asked_of_slot[slot]];
    same = same && ReadRoot(asked, fleet.shortcuts) == fleet.class_of_slot[slot];
    fleet.odd |= asked.version % 2 != 0;
  });
  fleet.seen = ended;
  return same && all;
}

MatchQuery::Shortcuts MatchQuery::BeginReading() {
  scratch_.classes.BeginWalk();
  if (of_fleet_) return scratch_.fleet.shortcuts;
  Shortcuts shortcuts;
  for (Asked& asked : *asked_) {
    if (asked.settled != kNoClass) continue;
    scratch_.At(asked.slot) = ReadRoot(asked, shortcuts);
    scratch_.leading_of_slot[asked.slot] = 0;
  }
  return shortcuts;
}

bool MatchQuery::Read() {
  Shortcuts shortcuts = BeginReading();
  const bool exact = shape_.policy == MatchPolicy::kExact;
  shortcuts.until_gap &= exact;
  const bool leads =
      detail_ == Detail::kScores ? shortcuts.leading_score : shortcuts.leading_answer;
  led_ = leads && exact && contents_.empty() == has_chain() && ReadLeading(shortcuts.until_gap);
  if (!led_) {
    Walk(shortcuts.until_gap,
         [this](const HolderSet& set, uint32_t offset, const HoldingClasses::Stretch& stretch) {
           Collect(set, offset, stretch);
         });
  }
  return EndReading();
}

// If both contents and hashes are given, the walk by hash reads only unnamed blocks. Unnamed blocks
// may fill the gaps between the blocks that were found by content.
template <typename Visit>
void MatchQuery::Walk(bool until_gap, Visit&& visit) {
  const bool both = !contents_.empty() && has_chain();
  if (!contents_.empty()) {
    map_.WalkContents(contents_, shape_.hash_block_size, until_gap && !both,
                      [&](const ResidencyMap::Piece& piece) {
                        visit(*piece.holders, 0, {piece.position, piece.length, piece.step, false});
                      });
  }
  const auto by_hash = [&](const HolderSet& set, uint32_t offset, size_t position,
                           uint32_t length) {
    visit(set, offset, {position, length, 1, true});
  };
  if (!chain_.empty()) map_.WalkHashes(chain_, until_gap && !both, both, by_hash);
  if (!integers_.empty()) map_.WalkHashes(integers_, until_gap && !both, both, by_hash);
}

bool MatchQuery::ReadLeading(bool until_gap) {
  constexpr uint32_t kMostPause = 64;
  if (scratch_.leading_pause > 0) {
    --scratch_.leading_pause;
    return false;
  }
  scratch_.leading_reached = 0;
  scratch_.lead = {};
  bool decides = true;
  Walk(until_gap,
       [&](const HolderSet& set, uint32_t offset, const HoldingClasses::Stretch& stretch) {
         decides = decides && CollectLeading(set, offset, stretch);
       });
  AddPendingLead();
  scratch_.leading_failures = decides ? 0 : std::min(2 * scratch_.leading_failures + 1, kMostPause);
  scratch_.leading_pause = scratch_.leading_failures;
  return decides;
}

template <typename Visit>
inline uint32_t MatchQuery::VisitHolders(const HolderSet& set, uint32_t offset, uint32_t length,
                                         Visit&& visit) const {
  const uint64_t mask = BitRange(0, length);
  const uint32_t size = set.size();
  const HolderTable::Words words = holder_table_.words();
  for (uint32_t i = 0; i < size; ++i) {
    const uint64_t bits = set.bits(i) >> offset & mask;
    if (bits == 0) continue;
    visit(words.At(set.id(i)), i, bits);
  }
  return size;
}

// Without overlaps, no later stretch can fill a gap.
bool MatchQuery::CollectLeading(const HolderSet& set, uint32_t offset,
                                const HoldingClasses::Stretch& stretch) {
  if (stretch.step != 1 || stretch.position < scratch_.leading_reached) return false;
  if (AllStillLead(set, offset, stretch)) return true;
  AddPendingLead();
  scratch_.leading_reached = stretch.position + stretch.length;
  bool decides = true;
  uint64_t leads = 0;
  uint64_t useless = detail_ == Detail::kScores ? ~uint64_t{0} : 0;
  const std::span<uint32_t> leading(scratch_.leading_of_slot);
  const uint32_t size =
      VisitHolders(set, offset, stretch.length, [&](uint64_t word, uint32_t i, uint64_t bits) {
        const uint64_t slot = HolderTable::SlotOf(word);
        const bool asked = slot < leading.size() && leading[slot] != kNotLed;
        const bool on_gpu = HolderTable::KindOf(word) == kGpuOfGroup0;
        useless |= uint64_t{!asked || on_gpu} << (i % 64);
        if (!asked) return;
        if (!on_gpu) {
          decides = decides && detail_ == Detail::kScores;
        } else if (leading[slot] == stretch.position) {
          const auto held = static_cast<uint32_t>(std::countr_one(bits));
          leading[slot] += held;
          leads |= uint64_t{held == stretch.length} << (i % 64);
        }
      });
  scratch_.lead = {.set = size <= 64 ? &set : nullptr,
                   .size = size,
                   .leads = leads,
                   .useless = useless & ~leads};
  return decides;
}

bool MatchQuery::AllStillLead(const HolderSet& set, uint32_t offset,
                              const HoldingClasses::Stretch& stretch) {
  auto& lead = scratch_.lead;
  if (lead.set == nullptr || stretch.position != scratch_.leading_reached) return false;
  if (set.size() != lead.size || !set.HasIdsOf(*lead.set, lead.size)) return false;
  const uint64_t mask = BitRange(0, stretch.length);
  uint64_t all = 0;
  uint64_t some = 0;
  for (uint32_t i = 0; i < lead.size; ++i) {
    const uint64_t bits = set.bits(i) >> offset & mask;
    all |= uint64_t{bits == mask} << i;
    some |= uint64_t{bits != 0} << i;
  }
  // A GPU holder that does not lead lacks a block before the stretch. A holder on a lower tier may
  // have no bits in the stretches so far, but blocks in this stretch.
  if ((lead.leads & ~all) != 0 || (some & ~lead.leads & ~lead.useless) != 0) return false;
  lead.set = &set;
  lead.pending += stretch.length;
  scratch_.leading_reached += stretch.length;
  return true;
}

void MatchQuery::AddPendingLead() {
  auto& lead = scratch_.lead;
  if (lead.pending == 0) return;
  const HolderTable::Words words = holder_table_.words();
  const std::span<uint32_t> leading(scratch_.leading_of_slot);
  for (uint64_t leads = lead.leads; leads != 0; leads &= leads - 1) {
    const HolderId id = lead.set->id(static_cast<uint32_t>(std::countr_zero(leads)));
    const uint64_t slot = HolderTable::SlotOf(words.At(id));
    // A holder that was closed during the walk has no slot. The query reads its worker again.
    if (slot < leading.size() && leading[slot] != kNotLed) leading[slot] += lead.pending;
  }
  lead.pending = 0;
}

// True: the version of a worker changed during the first reading of a fleet, or is odd.
bool MatchQuery::AnyChanged() const {
  const Fleet& fleet = scratch_.fleet;
  const auto changed = [](const Asked& asked) { return !Unchanged(asked); };
  const ChangeLog& changes = holder_table_.changes();
  const uint64_t begun = changes.begun();  // I12: after all loads of data
  bool any = false;
  const bool all = !fleet.odd && changes.ForEach(fleet.seen, begun, [&](WorkerSlot slot) {
    if (slot >= fleet.asked_of_slot.size() || fleet.asked_of_slot[slot] == Fleet::kNotAsked) return;
    any = any || changed(fleet.asked[fleet.asked_of_slot[slot]]);
  });
  return all ? any : std::ranges::any_of(fleet.asked, changed);
}

bool MatchQuery::EndReading() {
  const auto is_settled = [](const Asked& asked) {
    return asked.settled != kNoClass || Unchanged(asked);
  };
  if (std::exchange(of_fleet_, false) ? !AnyChanged() : std::ranges::all_of(*asked_, is_settled)) {
    return true;
  }
  for (Asked& asked : *asked_) {
    if (asked.settled != kNoClass || !Unchanged(asked)) continue;
    asked.leading = LeadingOf(asked);
    asked.settled = std::exchange(scratch_.class_of_slot[asked.slot], kNoClass);
    scratch_.leading_of_slot[asked.slot] = kNotLed;
  }
  if (asked_ == &scratch_.fleet.asked) {
    // The next readings change the other workers' data, so later queries must not use the fleet.
    scratch_.fleet.settled = true;
    scratch_.fleet.roster = 0;
  }
  return false;
}

void MatchQuery::Collect(const HolderSet& set, uint32_t offset,
                         const HoldingClasses::Stretch& stretch) {
  HoldingClasses& classes = scratch_.classes;
  classes.Begin(stretch);
  const std::span<ClassId> class_of_slot(scratch_.class_of_slot);
  VisitHolders(set, offset, stretch.length, [&](uint64_t word, uint32_t, uint64_t bits) {
    const uint64_t slot = HolderTable::SlotOf(word);
    if (slot >= class_of_slot.size() || class_of_slot[slot] == kNoClass) return;
    const uint16_t kind = HolderTable::KindOf(word);
    if (detail_ == Detail::kScores && static_cast<Tier>(kind & 0xFF) != Tier::kGpu) return;
    class_of_slot[slot] = classes.With(class_of_slot[slot], kind, bits);
  });
}

ClassId MatchQuery::ClassOf(const Asked& asked) const {
  const ClassId base = BaseOf(asked);
  const uint32_t leading = LeadingOf(asked);
  if (leading == kNotLed || leading == 0) return base;
  return scratch_.classes.With(base, kGpuOfGroup0, leading);
}

void MatchQuery::AddAnswers(std::vector<WorkerMatch>& answers) const {
  scratch_.classes.BeginLeading();
  scratch_.answers.Begin(scratch_.classes, shape_, contents_);
  answers.reserve(answers.size() + asked_->size());
  for (const Asked& asked : *asked_) {
    const WorkerMatch* const match = scratch_.answers.Of(ClassOf(asked));
    if (match == nullptr) continue;
    WorkerMatch& answer = answers.emplace_back(*match);
    answer.worker = asked.id;
    answer.unnamed_gpu = asked.unnamed / 2;
  }
}

const HoldingClasses::Root& MatchQuery::RootOf(ClassId base) const {
  return scratch_.classes.root(scratch_.classes.node(base).number);
}

// Returns the score that ClassAnswers would give for a class with this number of leading blocks.
WorkerScore MatchQuery::ScoreOf(ClassId base, uint32_t leading) const {
  const HoldingClasses::Root& root = RootOf(base);
  const WorkerRules& rules = *root.rules;
  WorkerScore score;
  if (rules.hash_block_size != shape_.hash_block_size) return score;
  const int64_t tokens = std::min<int64_t>(leading, shape_.units) * rules.hash_block_size;
  score.gpu_tokens =
      rules.alignment == rules.hash_block_size ? tokens : tokens - tokens % rules.alignment;
  score.exact = root.certain && (has_chain() || !root.has_unnamed_gpu);
  return score;
}

void MatchQuery::AddScores(std::vector<WorkerScore>& scores) const {
  scratch_.classes.BeginLeading();
  ClassAnswers& of_classes = scratch_.answers;
  of_classes.Begin(scratch_.classes, shape_, contents_);
  scores.reserve(scores.size() + asked_->size());
  WorkerScore score;
  ClassId last = kNoClass;
  uint32_t last_leading = kNotLed;
  for (const Asked& asked : *asked_) {
    const ClassId base = BaseOf(asked);
    const uint32_t leading = LeadingOf(asked);
    if (base != last || leading != last_leading) {
      last = base;
      last_leading = leading;
      const bool led = leading != kNotLed && RootOf(base).ambiguous == nullptr;
      if (led) {
        score = ScoreOf(base, leading);
      } else {
        const ClassId id = ClassOf(asked);
        score = of_classes.HoldNothing(id) ? WorkerScore() : ScoreOf(of_classes.Of(id));
      }
    }
    if (score.gpu_tokens == 0) continue;
    score.worker = asked.id;
    scores.push_back(score);
  }
}

// `match`: the answer of a class; nullptr: see ClassAnswers::Of.
WorkerScore MatchQuery::ScoreOf(const WorkerMatch* match) const {
  WorkerScore score;
  if (match == nullptr) return score;
  score.gpu_tokens = match->gpu_tokens;
  score.exact = match->certain && !match->ambiguous && match->unknown == 0 &&
                (has_chain() || match->unnamed_gpu == 0);
  return score;
}

MatchPlan MatchQuery::Plan() const {
  scratch_.classes.BeginLeading();
  scratch_.answers.Begin(scratch_.classes, shape_, contents_);
  return scratch_.answers.PlanOf(ClassOf(asked_->front()));
}

}  // namespace kvcast::router
