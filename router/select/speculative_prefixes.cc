// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/speculative_prefixes.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>
#include <variant>

#include "kvcast/core/tier.h"
#include "src/hash/seeded_hash.h"

namespace kvcast {
namespace {

using HashSet = std::unordered_map<BlockHash, int64_t, router::SeededHash>;  // to expires_ms

}  // namespace

struct SpeculativePrefixes::Impl {
  // One routed hash. If the same hash is routed again, the older record is stale: its expiry
  // differs from the expiry of the current entry.
  struct Record {
    WorkerId worker;
    BlockHash hash;
    int64_t expires_ms;
  };

  // Removes the record. Also removes its entry, unless the entry was confirmed or renewed.
  void DropOldest() {
    const Record& oldest = records.front();
    if (const auto worker = expected.find(oldest.worker); worker != expected.end()) {
      const auto entry = worker->second.find(oldest.hash);
      if (entry != worker->second.end() && entry->second == oldest.expires_ms) {
        worker->second.erase(entry);
      }
      if (worker->second.empty()) expected.erase(worker);
    }
    records.pop_front();
  }
  void Expire(int64_t now_ms) {
    while (!records.empty() && records.front().expires_ms <= now_ms) DropOldest();
  }

  SpeculativeConfig config;
  // The records are in order of time. They bound the number of entries, because each entry has a
  // record.
  std::deque<Record> records;
  std::unordered_map<WorkerId, HashSet> expected;
};

SpeculativePrefixes::SpeculativePrefixes(const SpeculativeConfig& config)
    : impl_(std::make_unique<Impl>()) {
  impl_->config = config;
}
SpeculativePrefixes::~SpeculativePrefixes() = default;

void SpeculativePrefixes::Routed(WorkerId worker, std::span<const BlockHash> chain,
                                 int64_t now_ms) {
  impl_->Expire(now_ms);
  const SpeculativeConfig& config = impl_->config;
  if (config.lifetime_ms <= 0) return;
  // If the chain is longer than the bound, its tail is kept, because the deepest hash determines
  // the others.
  chain = chain.last(std::min(chain.size(), config.entries_max));
  const int64_t expires_ms = now_ms + config.lifetime_ms;
  for (const BlockHash& hash : chain) {
    if (impl_->records.size() >= config.entries_max) impl_->DropOldest();
    impl_->expected.try_emplace(worker, 0, router::SeededHash{router::ProcessSeed()})
        .first->second[hash] = expires_ms;
    impl_->records.push_back({worker, hash, expires_ms});
  }
}

void SpeculativePrefixes::Confirm(WorkerId worker, const EventBatch& batch) {
  for (const Event& event : batch.events) {
    const auto it = impl_->expected.find(worker);
    if (it == impl_->expected.end()) return;
    if (const auto* cleared = std::get_if<AllBlocksCleared>(&event)) {
      if (TierOf(cleared->medium) != Tier::kGpu) continue;
      impl_->expected.erase(it);
      return;
    }
    const auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || TierOf(stored->medium) != Tier::kGpu) continue;
    for (const BlockHash& hash : stored->block_hashes) it->second.erase(hash);
    if (it->second.empty()) impl_->expected.erase(it);
  }
}

void SpeculativePrefixes::Forget(WorkerId worker) { impl_->expected.erase(worker); }

int64_t SpeculativePrefixes::Match(WorkerId worker, std::span<const BlockHash> chain, int64_t unit,
                                   int64_t now_ms) {
  impl_->Expire(now_ms);
  const auto it = impl_->expected.find(worker);
  if (it == impl_->expected.end()) return 0;
  for (size_t i = chain.size(); i > 0; --i) {
    if (it->second.contains(chain[i - 1])) return static_cast<int64_t>(i) * unit;
  }
  return 0;
}

size_t SpeculativePrefixes::entries() const {
  size_t total = 0;
  for (const auto& [worker, hashes] : impl_->expected) total += hashes.size();
  return total;
}

}  // namespace kvcast
