// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/residency_budget.h"

#include <algorithm>
#include <utility>

#include "router/service/ingest/worker_registration.h"

namespace kvcast::router {

// The engine chooses the group numbers. Without a maximum number of groups, the engine could raise
// its own maximum of residencies without bound.
uint64_t MaxResidencies(int64_t configured, size_t groups) {
  if (configured > 0) return static_cast<uint64_t>(configured);
  return std::clamp<size_t>(groups, 1, kMaxCountedGroups) * uint64_t{kDefaultMaxBlocks};
}

ResidencyBudget::Share::Share(std::shared_ptr<ResidencyBudget> budget)
    : budget_(std::move(budget)) {
  if (budget_) ++budget_->sources_;
}

ResidencyBudget::Share::~Share() {
  if (!budget_) return;
  budget_->total_ -= noted_;
  --budget_->sources_;
}

bool ResidencyBudget::Share::Note(uint64_t residencies) {
  if (!budget_) return false;
  // The difference may be negative; the sum is the same modulo 2^64.
  const uint64_t total = budget_->total_.fetch_add(residencies - noted_) + (residencies - noted_);
  noted_ = residencies;
  if (budget_->max_ == 0 || total <= budget_->max_) return false;
  return residencies > budget_->max_ / std::max<uint64_t>(budget_->sources_, 1);
}

}  // namespace kvcast::router
