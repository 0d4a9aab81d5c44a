// MatchQuery: one query. It reads from the index which workers hold which blocks of a prompt.
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

// The data of a registered worker that queries read. Freed when no reader is pinned that may have
// found it (I11). Numbers such as I1 are the invariants of README.md in this folder.
struct alignas(64) WorkerView {
  WorkerView(WorkerId worker, WorkerSlot number) : id(worker), slot(number) {}

  const WorkerId id;
  const WorkerSlot slot;
  // I1: odd while a batch of the worker is being shown, while a run with named blocks of the worker
  // is moved, and after the worker was removed. Each batch and each move adds 2.
  std::atomic<uint64_t> version{0};
  // The members below change only while the version is odd (I1, I2). I10: the two pointers.
  std::atomic<const WorkerRules*> rules{nullptr};
  std::atomic<bool> certain{true};
  // Twice the number of GPU blocks without a name; plus 1 if there are such blocks on any tier.
  std::atomic<uint64_t> unnamed{0};
  std::atomic<bool> has_named{false};
  std::atomic<const AmbiguousNames*> ambiguous{nullptr};  // nullptr: none
};

// REQUIRES: the thread holds a Pin as long as the object exists. A thread may have one MatchQuery
// at a time, because the object uses thread-local memory.
class MatchQuery {
 public:
  // Uses the first shape.prompt_units contents and hashes of the prompt.
  MatchQuery(const ResidencyMap& map, const PlaceTable& places, const PromptBlocks& prompt,
             const QueryShape& shape);
  ~MatchQuery();

  // Does nothing if the worker was added before.
  void Ask(const WorkerView& worker);
  // Reads the blocks of the workers that are not settled. A worker is settled if no batch of it was
  // shown during the reading, and no named block of it was moved. True: all workers are settled.
  bool Read();
  // Answers in the order of Ask, without workers of another hash block size. REQUIRES: Read
  // returned true.
  std::vector<WorkerMatch> Answers() const;
  // The blocks of the only queried worker. REQUIRES: Read returned true, and the worker has this
  // hash block size.
  MatchPlan Plan() const;

 private:
  struct Asked {
    const WorkerView* view;
    const WorkerRules* rules = nullptr;
    uint64_t version = 0;
    bool certain = true;
    bool ambiguous = false;
    uint64_t unnamed = 0;      // WorkerView::unnamed
    size_t unnamed_units = 0;  // units up to the last block that was found by hash alone
    const AmbiguousNames* ambiguous_names = nullptr;
    bool settled = false;
    uint32_t first_mark = kNone;
  };
  // The blocks of the prompt that one place holds.
  struct Mark {
    uint32_t asked;
    uint32_t next;  // next mark of the same worker
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
  // The part of an answer that is equal for all workers with one unit, alignment and run length.
  struct RunAnswer {
    int64_t unit = 0;
    int64_t alignment = 0;
    int64_t run = 0;  // units
    int64_t tokens = 0;
    HitKind hit = HitKind::kMiss;
  };
  RunAnswer AnswerOf(const WorkerRules& rules, int64_t run) const;
  // `last`: the result for the worker before.
  void Answer(const Asked& asked, RunAnswer& last, WorkerMatch& match) const;
  bool LeadingRun(const Asked& asked, RunAnswer& last, WorkerMatch& match) const;

  const ResidencyMap& map_;
  const PlaceTable& places_;
  const std::span<const ContentKey> contents_;  // of the prompt's units; empty: match by hash alone
  const std::span<const BlockHash> chain_;  // of the prompt's units; empty: match by content alone
  const QueryShape shape_;
  const size_t words_;  // words of a mark
  bool has_read_ = false;
  Scratch& scratch_;
};

}  // namespace kvcast::router
