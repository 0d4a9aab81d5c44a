// SPDX-License-Identifier: Apache-2.0
#include "router/index/holding_classes.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace kvcast::router {
namespace {

constexpr size_t kSmallTable = 64;

size_t Mix(uint64_t a, uint64_t b) {
  const uint64_t hash = (a ^ a >> 32 ^ b) * 0x9E3779B97F4A7C15;
  return static_cast<size_t>(hash ^ hash >> 29);
}

uint64_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

size_t HashOfRoot(const HoldingClasses::Root& root) {
  const uint64_t flags = uint64_t{root.certain} | uint64_t{root.has_unnamed} << 1 |
                         uint64_t{root.has_unnamed_gpu} << 2;
  return Mix(Mix(Address(root.rules), Address(root.ambiguous)), flags);
}

}  // namespace

void HoldingClasses::Table::Reset(size_t nodes) {
  entries.assign(std::max(kSmallTable, std::bit_ceil(2 * nodes)), kNoClass);
  used = 0;
}

void HoldingClasses::Clear() {
  roots_.clear();
  stretches_.clear();
  nodes_.clear();
  root_table_.Reset();
  table_.Reset();
  reached_ = 0;
  overlaps_ = false;
}

void HoldingClasses::ClearWalks() {
  stretches_.clear();
  reached_ = 0;
  overlaps_ = false;
  size_t roots = 0;
  for (; roots < nodes_.size() && nodes_[roots].parent == kNoClass; ++roots) {
    nodes_[roots].last_child = kNoClass;
  }
  nodes_.resize(roots);
  if (table_.used > 0) table_.Reset();
  if (roots == roots_.size()) return;
  roots_.resize(roots);
  root_table_.Reset(roots);
  for (ClassId id = 0; id < roots; ++id) Enter(root_table_, id);
}

void HoldingClasses::Begin(const Stretch& stretch) {
  stretches_.push_back(stretch);
  if (stretch.by_hash) return;
  overlaps_ = overlaps_ || stretch.position < reached_;
  reached_ = std::max(reached_, stretch.position + stretch.length * size_t{stretch.step});
}

size_t HoldingClasses::HashOf(const Node& node) const {
  if (node.parent == kNoClass) return HashOfRoot(roots_[node.number]);
  return Mix(node.bits * 0xD6E8FEB86659FD93, uint64_t{node.parent} << 16 | node.kind);
}

template <typename Predicate>
ClassId HoldingClasses::Search(const Table& table, size_t hash, Predicate&& is,
                               size_t& entry) const {
  const std::vector<ClassId>& entries = table.entries;
  const size_t mask = entries.size() - 1;
  for (entry = hash & mask; entries[entry] != kNoClass; entry = (entry + 1) & mask) {
    if (is(nodes_[entries[entry]])) return entries[entry];
  }
  return kNoClass;
}

void HoldingClasses::Enter(Table& table, ClassId id) {
  size_t entry = 0;
  Search(
      table, HashOf(nodes_[id]), [](const Node&) { return false; }, entry);
  table.entries[entry] = id;
  ++table.used;
}

ClassId HoldingClasses::Add(Table& table, const Node& node, size_t entry) {
  const auto id = static_cast<ClassId>(nodes_.size());
  nodes_.push_back(node);
  table.entries[entry] = id;
  if (2 * ++table.used <= table.entries.size()) return id;
  const std::vector<ClassId> entries = table.entries;
  table.Reset(table.used + 1);
  for (const ClassId known : entries) {
    if (known != kNoClass) Enter(table, known);
  }
  return id;
}

ClassId HoldingClasses::ClassOf(const Root& root) {
  size_t entry = 0;
  const auto is = [&](const Node& node) {
    return node.parent == kNoClass && roots_[node.number] == root;
  };
  const ClassId known = Search(root_table_, HashOfRoot(root), is, entry);
  if (known != kNoClass) return known;
  Node node;
  node.number = static_cast<uint32_t>(roots_.size());
  roots_.push_back(root);
  return Add(root_table_, node, entry);
}

ClassId HoldingClasses::FindOrAdd(ClassId from, uint16_t kind, uint64_t bits) {
  Node node;
  node.parent = from;
  node.number = static_cast<uint32_t>(stretches_.size() - 1);
  node.bits = bits;
  node.kind = kind;
  size_t entry = 0;
  const auto is = [&](const Node& known) { return Is(known, from, kind, bits); };
  ClassId id = Search(table_, HashOf(node), is, entry);
  if (id == kNoClass) id = Add(table_, node, entry);
  nodes_[from].last_child = id;
  return id;
}

}  // namespace kvcast::router
