// ResidencyMap: block hash -> who holds it, with copy counts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "kvcast/block_hash_value.h"
#include "router/holder.h"

namespace kvcast::router {

// Hashes come from the network: `seed` keeps a sender from choosing colliding ones. The map's
// answers do not depend on it. Equal hashes are equal in full, form included.
// Thread-compatible; const calls may run together.
class ResidencyMap {
 public:
  explicit ResidencyMap(uint64_t seed);
  ~ResidencyMap();

  // Adds one copy at `place` (its own count is ignored). True: the place did not hold the hash.
  bool Add(const BlockHash& hash, const Holder& place);

  enum class Removal : uint8_t { kNotHeld, kCopiesLeft, kLastCopy };
  Removal Remove(const BlockHash& hash, const Holder& place);

  // Who holds the hash, in no order. Valid until the next change.
  std::span<const Holder> Find(const BlockHash& hash) const;
  // Starts loading what Find or Add of this hash will touch.
  void Prefetch(const BlockHash& hash) const;

  // Drops all that `slot` holds in `tier` (nullopt: in all tiers). One pass over the map. Returns
  // the number of places dropped, by tier.
  std::array<uint64_t, kTiers> EraseSlot(WorkerSlot slot, std::optional<Tier> tier);

  // Calls `visit` for everything that `slot` holds, in no order. One pass over the map.
  using Visit = std::function<void(Tier, uint8_t group, const BlockHash&, uint32_t copies)>;
  void ForEach(WorkerSlot slot, const Visit& visit) const;

  // Distinct hashes held.
  size_t size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
