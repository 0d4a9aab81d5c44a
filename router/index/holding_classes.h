// HoldingClasses: sorts the workers of a query into classes. The workers of one class have equal
// rules and hold the same blocks of the prompt, in the same groups and tiers. Their answers are
// equal, so a query computes one answer per class.
//
// The walk over a prompt visits stretches: neighbouring blocks of a run, with their holders. The
// classes are the nodes of trees. A root stands for workers that hold no block so far. A child adds
// the blocks of one group and tier in one stretch. Two classes can have the same blocks, because
// the holders of two workers can have different orders in a stretch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "router/names/ambiguous_names.h"
#include "router/rules/worker_rules.h"

namespace kvcast::router {

using ClassId = uint32_t;
inline constexpr ClassId kNoClass = ~uint32_t{0};

// Keeps its memory from query to query. Thread-compatible.
class HoldingClasses {
 public:
  // Bit i of the blocks in a stretch belongs to one block: the block that ends with hash unit
  // position + i * step of the prompt.
  struct Stretch {
    size_t position = 0;   // units
    uint32_t length = 0;   // blocks
    uint32_t step = 1;     // units per block; 0: see BeginLeading
    bool by_hash = false;  // the blocks were found by hash, not by content
  };
  // The properties that decide the answer of a worker in addition to its blocks.
  struct Root {
    const WorkerRules* rules = nullptr;
    const AmbiguousNames* ambiguous = nullptr;  // nullptr: none
    bool certain = true;
    bool has_unnamed = false;      // blocks whose content is not known
    bool has_unnamed_gpu = false;  // blocks on the GPU whose content is not known
    bool operator==(const Root&) const = default;
  };
  struct Node {
    ClassId parent = kNoClass;  // kNoClass: a root
    uint32_t number = 0;        // of the root, or of the stretch
    uint64_t bits = 0;          // the blocks that the parent does not have; see BeginLeading
    uint16_t kind = 0;          // group << 8 | tier
    ClassId last_child = kNoClass;
  };

  void Clear();
  // Like Clear, but keeps the classes that ClassOf returned before the first walk.
  void ClearWalks();

  // Begins a walk over the prompt. Keeps the classes.
  void BeginWalk() { reached_ = 0; }
  // Returns the class of the workers with this root that hold no block.
  ClassId ClassOf(const Root& root);
  // Begins the next stretch.
  void Begin(const Stretch& stretch);
  // Begins a stretch for the leading blocks of the prompt: the argument `bits` of With is then the
  // number of these blocks.
  void BeginLeading() { stretches_.push_back({.step = 0}); }
  // True: two stretches that one walk found by content may have a position in common.
  bool overlaps() const { return overlaps_; }
  // Returns the class of the workers of class `from` that also hold the blocks `bits` of the
  // current stretch in the group and tier `kind`.
  ClassId With(ClassId from, uint16_t kind, uint64_t bits) {
    const ClassId child = nodes_[from].last_child;
    if (child != kNoClass && Is(nodes_[child], from, kind, bits)) return child;
    return FindOrAdd(from, kind, bits);
  }

  const Node& node(ClassId id) const { return nodes_[id]; }
  const Stretch& stretch(uint32_t number) const { return stretches_[number]; }
  const Root& root(uint32_t number) const { return roots_[number]; }

 private:
  bool Is(const Node& node, ClassId from, uint16_t kind, uint64_t bits) const {
    return node.parent == from && node.bits == bits && node.kind == kind &&
           node.number + 1 == stretches_.size();
  }
  ClassId FindOrAdd(ClassId from, uint16_t kind, uint64_t bits);

  // Nodes by a hash of their fields. Open addressing: the size of `entries` is a power of two, and
  // at least half of the entries are kNoClass.
  struct Table {
    std::vector<ClassId> entries;
    size_t used = 0;

    // Empties the table, and makes room for `nodes` nodes.
    void Reset(size_t nodes = 0);
  };
  // Returns the node for which `is` is true. kNoClass: no such node; `entry` is then the free entry
  // where the search ended.
  template <typename Predicate>
  ClassId Search(const Table& table, size_t hash, Predicate&& is, size_t& entry) const;
  // Adds a node whose search ended at `entry`.
  ClassId Add(Table& table, const Node& node, size_t entry);
  // Enters a node that the table does not have.
  void Enter(Table& table, ClassId id);
  size_t HashOf(const Node& node) const;

  std::vector<Root> roots_;
  std::vector<Stretch> stretches_;
  std::vector<Node> nodes_;
  Table root_table_;    // the roots; they outlive the walks
  Table table_;         // the other nodes
  size_t reached_ = 0;  // units; the highest end of a stretch that this walk found by content
  bool overlaps_ = false;
};

}  // namespace kvcast::router
