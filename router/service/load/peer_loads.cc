// SPDX-License-Identifier: Apache-2.0
#include "router/service/load/peer_loads.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace kvcast::router {

std::optional<GaugeReject> PeerLoads::Take(LoadGauge gauge, int64_t now_us) {
  if (gauge.origin == name_) {
    if (gauge.epoch == epoch_) return std::nullopt;
    return GaugeReject::kSameName;
  }
  auto it = origins_.find(gauge.origin);
  if (it == origins_.end()) {
    if (origins_.size() >= kMaxOrigins) return GaugeReject::kTooMany;
  } else if (std::tie(gauge.epoch, gauge.seq) <= std::tie(it->second.epoch, it->second.seq)) {
    return GaugeReject::kOldGauge;
  }
  if (WorkersOfOthers(gauge.origin) + gauge.load.workers.size() > kMaxWorkers) {
    return GaugeReject::kTooMany;
  }
  if (it == origins_.end()) {
    it = origins_.try_emplace(gauge.origin).first;
    ++version_;
  }
  Origin& origin = it->second;
  if (origin.load != gauge.load) ++version_;
  origin = {.epoch = gauge.epoch,
            .seq = gauge.seq,
            .heard_us = now_us,
            .expires_at_us = now_us + kSilentPeriods * gauge.period_ms * 1000,
            .load = std::move(gauge.load)};
  return std::nullopt;
}

// The number of workers in the loads of all origins but this one.
size_t PeerLoads::WorkersOfOthers(const std::string& origin) const {
  size_t workers = 0;
  for (const auto& [name, other] : origins_) {
    if (name != origin) workers += other.load.workers.size();
  }
  return workers;
}

void PeerLoads::Expire(int64_t now_us) {
  version_ += std::erase_if(
      origins_, [&](const auto& entry) { return entry.second.expires_at_us <= now_us; });
}

std::optional<int64_t> PeerLoads::expires_us() const {
  std::optional<int64_t> first;
  for (const auto& [name, origin] : origins_) {
    first = std::min(first.value_or(origin.expires_at_us), origin.expires_at_us);
  }
  return first;
}

PeerView PeerLoads::view() const {
  PeerView view{.routers = origins_.size(), .oldest_us = std::nullopt};
  for (const auto& [name, origin] : origins_) {
    view.oldest_us = std::min(view.oldest_us.value_or(origin.heard_us), origin.heard_us);
  }
  return view;
}

OriginLoad PeerLoads::Sum() const {
  std::map<std::string_view, InFlight> by_worker;
  OriginLoad sum;
  for (const auto& [name, origin] : origins_) {
    sum.arrivals_per_s += origin.load.arrivals_per_s;
    sum.work_s_per_s += origin.load.work_s_per_s;
    for (const WorkerGauge& gauge : origin.load.workers) by_worker[gauge.worker] += gauge.load;
  }
  for (const auto& [worker, load] : by_worker) sum.workers.push_back({std::string(worker), load});
  return sum;
}

}  // namespace kvcast::router
