// MatchQuery: one query. It reads from the index which workers hold which blocks of a prompt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "router/index/class_answers.h"
#include "router/index/residency_map.h"
#include "router/names/ambiguous_names.h"
#include "router/rules/match_plan.h"
#include "router/rules/worker_rules.h"

namespace kvcast::router {

// The data of a registered worker that queries read. A view is freed only after every reader that
// may have found it has released its Pin (I11). Numbers such as I1 are the invariants of README.md
// in this folder.
struct alignas(64) WorkerView {
  WorkerView(WorkerId worker, WorkerSlot number) : id(worker), slot(number) {}

  const WorkerId id;
  const WorkerSlot slot;
  // I1: odd while a batch of the worker is being shown, while a run with named blocks of the worker
  // is moved, and after the worker was removed. Each batch and each move adds 2.
  std::atomic<uint64_t> version{0};
  // The members below change only while the version is odd (I1, I2). I10 applies to the two
  // pointers.
  std::atomic<const WorkerRules*> rules{nullptr};
  std::atomic<bool> certain{true};
  // Twice the number of GPU blocks without a name; plus 1 if any tier has a block without a name.
  std::atomic<uint64_t> unnamed{0};
  std::atomic<bool> has_named{false};
  std::atomic<const AmbiguousNames*> ambiguous{nullptr};  // nullptr: none
};

// REQUIRES: the thread holds a Pin as long as the object exists. A thread may have one MatchQuery
// at a time, because the object uses thread-local memory.
class MatchQuery {
 public:
  // Which blocks the answers need.
  enum class Detail : uint8_t {
    kAll,    // for AddAnswers and Plan
    kScores  // for AddScores: blocks on the GPU
  };
  // Uses the first shape.prompt_units contents and hashes of the prompt. `memory`: selects the
  // thread-local memory. If a thread queries several indexes alternately, each index needs its own
  // `memory`. Otherwise the thread does not keep the workers of the previous query (I12).
  MatchQuery(const ResidencyMap& map, const HolderTable& holder_table, const PromptBlocks& prompt,
             const QueryShape& shape, Detail detail = Detail::kAll, size_t memory = 0);
  ~MatchQuery();

  // Adds a worker to the query. Does nothing if the worker was added before.
  void Ask(const WorkerView& worker);
  // Adds all workers of the roster with this number. If a thread queries the same roster again, it
  // reads only the workers that have changed since its previous query (I12). REQUIRES: no worker
  // was added before.
  void AskAll(std::span<const WorkerView* const> workers, uint64_t roster);
  bool empty() const { return asked_->empty(); }  // no worker was added
  // Reads the blocks of the workers that are not settled. A worker is settled if its version was
  // even and did not change during a reading. True: all workers are settled.
  bool Read();

  // The methods below need a Read that returned true.
  //
  // Adds the answers in the order of Ask. Leaves out workers whose hash block size differs from
  // the query's.
  void AddAnswers(std::vector<WorkerMatch>& answers) const;
  // Adds the workers that can reuse at least one token, in the order of Ask.
  void AddScores(std::vector<WorkerScore>& scores) const;
  // The blocks of the only queried worker. REQUIRES: the worker has the hash block size of the
  // query.
  MatchPlan Plan() const;

 private:
  struct Asked {
    const WorkerView* view = nullptr;
    // Copies of the view's members. A query does not load the views of unchanged workers.
    WorkerId id;
    WorkerSlot slot;
    uint64_t version = 0;
    uint64_t unnamed = 0;  // WorkerView::unnamed
    // The worker's class, if the worker is settled and another worker of the query is not.
    ClassId settled = kNoClass;
    // Only if `settled` is set: the number of the worker's leading blocks. The class does not
    // contain these blocks. kNotLed: the class contains all blocks of the worker.
    uint32_t leading = kNotLed;
  };
  static constexpr uint32_t kNotLed = ~uint32_t{0};
  struct Fleet;
  struct Scratch;

  static Scratch& ThreadScratch(size_t memory);
  // Returns the worker's class. If `leading` is not kNotLed, the class does not contain the leading
  // blocks.
  ClassId BaseOf(const Asked& asked) const;
  // See Asked::leading.
  uint32_t LeadingOf(const Asked& asked) const;
  // REQUIRES: HoldingClasses::BeginLeading was called after the last reading.
  ClassId ClassOf(const Asked& asked) const;
  // REQUIRES: `base` is a root.
  const HoldingClasses::Root& RootOf(ClassId base) const;
  WorkerScore ScoreOf(ClassId base, uint32_t leading) const;
  WorkerScore ScoreOf(const WorkerMatch* match) const;
  // The shortcuts that the rules of all workers of a reading allow.
  struct Shortcuts {
    // The walk may stop at the first block that no worker holds.
    bool until_gap = true;
    // The score of each worker depends only on its number of leading blocks (AddScores).
    bool leading_score = true;
    // The answer of each worker depends only on its number of leading blocks (AddAnswers).
    bool leading_answer = true;
  };
  static void Restrict(Shortcuts& shortcuts, const WorkerRules& rules);
  // Reads the worker's properties. Returns its class.
  ClassId ReadRoot(Asked& asked, Shortcuts& shortcuts);
  // Reads the workers that are not settled.
  Shortcuts BeginReading();
  // True: the thread's fleet has the current properties of all workers of the roster.
  bool UpdateFleet(uint64_t roster);
  void ReadFleet(std::span<const WorkerView* const> workers, uint64_t roster);
  // True: all workers are settled.
  bool EndReading();
  bool AnyChanged() const;
  // Calls `visit(set, offset, stretch)` for each stretch of the prompt. Bit offset + i of a holder
  // belongs to block i of the stretch.
  template <typename Visit>
  void Walk(bool until_gap, Visit&& visit);
  // Counts the leading blocks of each worker. False: the caller must use Collect, because two
  // stretches may overlap, a lower tier holds a block (Detail::kAll), or the function returned
  // false in a recent query of this thread.
  bool ReadLeading(bool until_gap);
  bool CollectLeading(const HolderSet& set, uint32_t offset,
                      const HoldingClasses::Stretch& stretch);
  // A worker leads if it holds all blocks of the prompt before the stretch. True: the stretch
  // follows the previous stretch, its set has the same holders, every worker that leads also holds
  // all blocks of the stretch, and no block of another holder can change the answers. The function
  // then adds the stretch to the leading blocks of the workers that lead.
  bool AllStillLead(const HolderSet& set, uint32_t offset, const HoldingClasses::Stretch& stretch);
  void AddPendingLead();
  // Calls `visit(word, i, bits)` for each holder that has some of the `length` blocks from this
  // offset on. `word`: the word of holder i of the set in HolderTable. Bit j of `bits`: the holder
  // has the block at offset + j. The slot of a closed holder is above all slots. The worker of a
  // slot is not always part of the query. Returns the number of holders of the set.
  template <typename Visit>
  uint32_t VisitHolders(const HolderSet& set, uint32_t offset, uint32_t length,
                        Visit&& visit) const;
  bool has_chain() const { return !chain_.empty() || !integers_.empty(); }
  void Collect(const HolderSet& set, uint32_t offset, const HoldingClasses::Stretch& stretch);

  const ResidencyMap& map_;
  const HolderTable& holder_table_;
  const std::span<const ContentKey> contents_;  // of the prompt's units; empty: match by hash alone
  // The hashes of the prompt's units, in one of two forms. The other form is empty. If both forms
  // are empty, the query matches by content alone.
  const std::span<const BlockHash> chain_;
  const std::span<const uint64_t> integers_;
  const QueryShape shape_;
  const Detail detail_;
  Scratch& scratch_;
  std::vector<Asked>* asked_;  // of the scratch, or of its fleet
  bool of_fleet_ = false;      // asked_ is the fleet's, and this is the first reading
  bool led_ = false;           // ReadLeading returned true in the last reading
};

}  // namespace kvcast::router
