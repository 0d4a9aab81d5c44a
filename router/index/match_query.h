// MatchQuery: one query's reading of the index: which workers hold which blocks of a prompt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "router/index/match_plan.h"
#include "router/index/residency_map.h"
#include "router/index/worker_rules.h"
#include "router/names/ambiguous_names.h"

namespace kvcast::router {

// What queries see of a registered worker. Lives as long as a reader is pinned that found it.
struct alignas(64) WorkerView {
  WorkerView(WorkerId worker, WorkerSlot number) : id(worker), slot(number) {}

  const WorkerId id;
  const WorkerSlot slot;
  // Odd while a batch is being applied; another number afterwards.
  std::atomic<uint64_t> version{0};
  std::atomic<const WorkerRules*> rules{nullptr};
  std::atomic<bool> certain{true};
  std::atomic<uint64_t> unnamed_gpu{0};
  std::atomic<bool> has_named{false};
  std::atomic<bool> has_unnamed{false};
  std::atomic<const AmbiguousNames*> ambiguous{nullptr};  // nullptr: none
};

// REQUIRES: the thread is pinned while it lives. Uses memory of the thread: one at a time.
class MatchQuery {
 public:
  // The prompt's names are those of shape.prompt_units.
  MatchQuery(const ResidencyMap& map, const PlaceTable& places, const PromptBlocks& prompt,
             const QueryShape& shape);
  ~MatchQuery();

  // No-op if the worker was asked before.
  void Ask(const WorkerView& worker);
  // Reads what the workers hold who were not settled before. True: all are settled, that is, each
  // was read between two of its batches.
  bool Read();
  // In the order of Ask, without workers of another hash unit. REQUIRES: Read said true.
  std::vector<WorkerMatch> Answers() const;
  // The blocks of the only worker asked. REQUIRES: Read said true, and it has this hash unit.
  MatchPlan Plan() const;

 private:
  struct Asked {
    const WorkerView* view;
    const WorkerRules* rules = nullptr;
    uint64_t version = 0;
    bool certain = true;
    bool ambiguous = false;
    bool has_unnamed = false;
    uint64_t unnamed_gpu = 0;
    size_t unnamed_units = 0;  // up to the last block that was found by hash beside contents
    const AmbiguousNames* ambiguous_names = nullptr;
    bool settled = false;
    uint32_t first_mark = kNone;
  };
  // The hashes that one place holds.
  struct Mark {
    uint32_t asked;
    uint32_t next;  // of the same worker
    uint8_t group;
    Tier tier;
  };
  struct Scratch;
  static constexpr uint32_t kNone = ~uint32_t{0};

  static Scratch& ThreadScratch();
  std::span<const uint64_t> WordsOf(uint32_t mark) const;
  uint32_t MarkOf(PlaceId place);
  uint32_t NewMarkOf(PlaceId place);
  void Collect(const HolderSet& holders, uint32_t offset, size_t position, uint32_t length);
  void CollectSpread(const ResidencyMap::Piece& piece);
  void CollectContents();
  void NoteUnnamed(const HolderSet& holders, uint32_t offset, size_t position, uint32_t length);
  void FindAmbiguities();
  void DropAmbiguous();
  void Drop(Asked& asked, size_t position);
  bool UntilGap() const;
  MatchPlan PlanOf(const Asked& asked) const;
  uint32_t UntoldOf(const Asked& asked, const WorkerMatch& match) const;
  uint32_t UntoldOfLoads(const Asked& asked, const WorkerMatch& match) const;
  // What is the same for all workers of one unit and alignment that hold a run of one length.
  struct RunAnswer {
    int64_t unit = 0;
    int64_t alignment = 0;
    int64_t run = 0;  // units
    int64_t tokens = 0;
    HitKind hit = HitKind::kMiss;
  };
  RunAnswer AnswerOf(const WorkerRules& rules, int64_t run) const;
  // `last`: of the worker before.
  void Answer(const Asked& asked, RunAnswer& last, WorkerMatch& match) const;
  bool LeadingRun(const Asked& asked, RunAnswer& last, WorkerMatch& match) const;

  const ResidencyMap& map_;
  const PlaceTable& places_;
  const std::span<const ContentKey> contents_;  // of the prompt's units; empty: by hash alone
  const std::span<const BlockHash> chain_;      // of the prompt's units; empty: by content alone
  const QueryShape shape_;
  const size_t words_;  // of a mark
  bool has_read_ = false;
  Scratch& scratch_;
};

}  // namespace kvcast::router
