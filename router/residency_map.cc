// SPDX-License-Identifier: Apache-2.0
#include "router/residency_map.h"

#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "router/seeded_hash.h"

namespace kvcast::router {
namespace {

// Two holders inline cost no more than the pointer of an out-of-line list would.
using Holders = absl::InlinedVector<Holder, 2>;

template <typename Key>
using Table = absl::flat_hash_map<Key, Holders, SeededHash>;

Holder* FindPlace(Holders& holders, const Holder& place) {
  for (Holder& holder : holders) {
    if (holder.SamePlace(place)) return &holder;
  }
  return nullptr;
}

template <typename Key>
void EraseSlotFrom(Table<Key>& table, WorkerSlot slot, std::optional<Tier> tier,
                   std::array<uint64_t, kTiers>& dropped) {
  for (auto it = table.begin(); it != table.end();) {
    Holders& holders = it->second;
    for (size_t i = 0; i < holders.size();) {
      if (holders[i].slot != slot || (tier && holders[i].tier != *tier)) {
        ++i;
        continue;
      }
      ++dropped[static_cast<size_t>(holders[i].tier)];
      holders[i] = holders.back();
      holders.pop_back();
    }
    // Post-increment: erase of a flat_hash_map invalidates only the erased entry.
    if (holders.empty()) {
      table.erase(it++);
    } else {
      ++it;
    }
  }
}

}  // namespace

// One table per form of hash, so that integers, the common form, cost 8 bytes of key.
struct ResidencyMap::Impl {
  explicit Impl(uint64_t seed)
      : unsigned_ints(0, SeededHash{seed}),
        negative_ints(0, SeededHash{seed}),
        byte_strings(0, SeededHash{seed}) {}

  // Calls `visit(table, key)` with the table and key of `hash`.
  template <typename Self, typename Visit>
  static auto Dispatch(Self& self, const BlockHash& hash, Visit&& visit) {
    switch (hash.form()) {
      case BlockHash::Form::kUnsigned:
        return visit(self.unsigned_ints, hash.integer());
      case BlockHash::Form::kNegative:
        return visit(self.negative_ints, hash.integer());
      case BlockHash::Form::kBytes:
        break;
    }
    return visit(self.byte_strings, hash);
  }

  Table<uint64_t> unsigned_ints;
  Table<uint64_t> negative_ints;
  Table<BlockHash> byte_strings;
};

ResidencyMap::ResidencyMap(uint64_t seed) : impl_(std::make_unique<Impl>(seed)) {}
ResidencyMap::~ResidencyMap() = default;

bool ResidencyMap::Add(const BlockHash& hash, const Holder& place) {
  return Impl::Dispatch(*impl_, hash, [&](auto& table, const auto& key) {
    Holders& holders = table[key];
    if (Holder* held = FindPlace(holders, place)) {
      if (held->copies < std::numeric_limits<uint32_t>::max()) ++held->copies;
      return false;
    }
    Holder first = place;
    first.copies = 1;
    holders.push_back(first);
    return true;
  });
}

ResidencyMap::Removal ResidencyMap::Remove(const BlockHash& hash, const Holder& place) {
  return Impl::Dispatch(*impl_, hash, [&](auto& table, const auto& key) {
    const auto it = table.find(key);
    Holder* held = it == table.end() ? nullptr : FindPlace(it->second, place);
    if (held == nullptr) return Removal::kNotHeld;
    if (--held->copies > 0) return Removal::kCopiesLeft;
    *held = it->second.back();
    it->second.pop_back();
    if (it->second.empty()) table.erase(it);
    return Removal::kLastCopy;
  });
}

std::span<const Holder> ResidencyMap::Find(const BlockHash& hash) const {
  return Impl::Dispatch(std::as_const(*impl_), hash, [](const auto& table, const auto& key) {
    const auto it = table.find(key);
    if (it == table.end()) return std::span<const Holder>();
    return std::span<const Holder>(it->second.data(), it->second.size());
  });
}

void ResidencyMap::Prefetch(const BlockHash& hash) const {
  Impl::Dispatch(std::as_const(*impl_), hash,
                 [](const auto& table, const auto& key) { table.prefetch(key); });
}

std::array<uint64_t, kTiers> ResidencyMap::EraseSlot(WorkerSlot slot, std::optional<Tier> tier) {
  std::array<uint64_t, kTiers> dropped{};
  EraseSlotFrom(impl_->unsigned_ints, slot, tier, dropped);
  EraseSlotFrom(impl_->negative_ints, slot, tier, dropped);
  EraseSlotFrom(impl_->byte_strings, slot, tier, dropped);
  return dropped;
}

void ResidencyMap::ForEach(WorkerSlot slot, const Visit& visit) const {
  const auto walk = [&](const auto& table, auto hash_of) {
    for (const auto& [key, holders] : table) {
      for (const Holder& holder : holders) {
        if (holder.slot == slot) visit(holder.tier, holder.group, hash_of(key), holder.copies);
      }
    }
  };
  walk(impl_->unsigned_ints, [](uint64_t value) { return BlockHash::FromUnsigned(value); });
  walk(impl_->negative_ints,
       [](uint64_t value) { return BlockHash::FromSigned(static_cast<int64_t>(value)); });
  walk(impl_->byte_strings, [](const BlockHash& hash) { return hash; });
}

size_t ResidencyMap::size() const {
  return impl_->unsigned_ints.size() + impl_->negative_ints.size() + impl_->byte_strings.size();
}

}  // namespace kvcast::router
