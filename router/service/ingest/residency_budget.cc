// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/residency_budget.h"

#include <algorithm>
#include <utility>

namespace kvcast::router {

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
