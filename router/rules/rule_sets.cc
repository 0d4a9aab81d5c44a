// SPDX-License-Identifier: Apache-2.0
#include "router/rules/rule_sets.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace kvcast::router {

const WorkerRules* RuleSets::Use(const WorkerRules& rules) {
  auto entry = std::find_if(entries_.begin(), entries_.end(),
                            [&rules](const Entry& known) { return *known.rules == rules; });
  if (entry == entries_.end()) {
    entry = entries_.insert(entry, {std::make_unique<const WorkerRules>(rules)});
  }
  ++entry->users;
  return entry->rules.get();
}

void RuleSets::Leave(const WorkerRules* rules) {
  if (rules == nullptr) return;
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [rules](const Entry& known) {
    return known.rules.get() == rules;
  });
  KV_CHECK(entry != entries_.end());
  if (--entry->users > 0) return;
  const auto free = [](void*, uintptr_t object) {
    delete reinterpret_cast<const WorkerRules*>(object);
  };
  reclaim_.Retire(free, nullptr, reinterpret_cast<uintptr_t>(entry->rules.release()));
  std::swap(*entry, entries_.back());
  entries_.pop_back();
}

}  // namespace kvcast::router
