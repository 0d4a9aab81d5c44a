// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/speculative_prefixes.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "kvcast/core/tier.h"
#include "src/hash/seeded_hash.h"

namespace kvcast {
namespace {

struct Entry {
  WorkerId worker;
  int64_t expires_ms;
};
using Entries = absl::InlinedVector<Entry, 1>;

// A longer lifetime would let the sum with the time overflow.
constexpr int64_t kMaxLifetimeMs = int64_t{1} << 62;

Entries::iterator Find(Entries& entries, WorkerId worker) {
  return std::ranges::find_if(entries,
                              [worker](const Entry& entry) { return entry.worker == worker; });
}

}  // namespace

PrefixName PrefixNameOf(const BlockHash& hash) {
  return hash.is_bytes() ? router::SeededHash{router::ProcessSeed()}(hash) : hash.integer();
}

struct SpeculativePrefixes::Impl {
  // One routed prefix. If the prefix is routed to the worker again, the older record is stale: its
  // expiry differs from the expiry of the entry.
  struct Record {
    WorkerId worker;
    PrefixName prefix;
    int64_t expires_ms;
  };

  void Add(WorkerId worker, PrefixName prefix, int64_t expires_ms) {
    Entries& entries = expected[prefix];
    records.push_back({worker, prefix, expires_ms});
    if (const auto entry = Find(entries, worker); entry != entries.end()) {
      entry->expires_ms = expires_ms;
      return;
    }
    entries.push_back({worker, expires_ms});
    ++of_worker[worker];
  }
  // Removes the entry of the worker, if there is one and `remove(entry)` is true.
  template <typename Remove>
  void RemoveIf(PrefixName prefix, WorkerId worker, Remove remove) {
    const auto it = expected.find(prefix);
    if (it == expected.end()) return;
    const auto entry = Find(it->second, worker);
    if (entry == it->second.end() || !remove(*entry)) return;
    it->second.erase(entry);
    if (it->second.empty()) expected.erase(it);
    const auto count = of_worker.find(worker);
    if (--count->second == 0) of_worker.erase(count);
  }
  // Removes the oldest record. Also removes its entry, unless the entry was confirmed or renewed.
  void DropOldest() {
    const Record& oldest = records.front();
    RemoveIf(oldest.prefix, oldest.worker,
             [&oldest](const Entry& entry) { return entry.expires_ms == oldest.expires_ms; });
    records.pop_front();
  }
  void Expire(int64_t now_ms) {
    while (!records.empty() && records.front().expires_ms <= now_ms) DropOldest();
  }
  void Forget(WorkerId worker) {
    if (of_worker.erase(worker) == 0) return;
    absl::erase_if(expected, [worker](auto& prefix) {
      if (const auto entry = Find(prefix.second, worker); entry != prefix.second.end()) {
        prefix.second.erase(entry);
      }
      return prefix.second.empty();
    });
  }

  SpeculativeConfig config;
  // The records are in order of time. They bound the number of entries, because each entry has a
  // record.
  std::deque<Record> records;
  // The hash function of the table needs a secret seed, because the senders of events and queries
  // choose the integer hashes.
  absl::flat_hash_map<PrefixName, Entries, router::SeededHash> expected{
      0, router::SeededHash{router::ProcessSeed()}};
  absl::flat_hash_map<WorkerId, size_t> of_worker;  // number of entries; at least 1
};

SpeculativePrefixes::SpeculativePrefixes(const SpeculativeConfig& config)
    : impl_(std::make_unique<Impl>()) {
  impl_->config = config;
  impl_->config.lifetime_ms = std::min(config.lifetime_ms, kMaxLifetimeMs);
}
SpeculativePrefixes::~SpeculativePrefixes() = default;

void SpeculativePrefixes::Routed(WorkerId worker, std::span<const PrefixName> prefixes,
                                 int64_t now_ms) {
  impl_->Expire(now_ms);
  const SpeculativeConfig& config = impl_->config;
  if (config.lifetime_ms <= 0) return;
  // If the list is longer than the bound, its tail is kept, because the longest prefix determines
  // the others.
  prefixes = prefixes.last(std::min(prefixes.size(), config.entries_max));
  for (const PrefixName prefix : prefixes) {
    if (impl_->records.size() >= config.entries_max) impl_->DropOldest();
    impl_->Add(worker, prefix, now_ms + config.lifetime_ms);
  }
}

bool SpeculativePrefixes::Expects(WorkerId worker) const {
  return impl_->of_worker.contains(worker);
}

void SpeculativePrefixes::Confirm(WorkerId worker, std::span<const PrefixName> stored) {
  for (const PrefixName name : stored) {
    if (!Expects(worker)) return;
    impl_->RemoveIf(name, worker, [](const Entry&) { return true; });
  }
}

void SpeculativePrefixes::Forget(WorkerId worker) { impl_->Forget(worker); }

std::vector<SpeculativePrefixes::Expected> SpeculativePrefixes::Match(
    std::span<const PrefixName> prefixes, int64_t now_ms) {
  impl_->Expire(now_ms);
  std::vector<Expected> found;
  const size_t workers = impl_->of_worker.size();
  for (size_t i = prefixes.size(); i > 0 && found.size() < workers; --i) {
    const auto it = impl_->expected.find(prefixes[i - 1]);
    if (it == impl_->expected.end()) continue;
    for (const Entry& entry : it->second) {
      const bool longer = std::ranges::any_of(
          found, [&entry](const Expected& of) { return of.worker == entry.worker; });
      if (!longer) found.push_back({entry.worker, i});
    }
  }
  return found;
}

size_t SpeculativePrefixes::entries() const {
  size_t total = 0;
  for (const auto& [worker, entries] : impl_->of_worker) total += entries;
  return total;
}

}  // namespace kvcast
