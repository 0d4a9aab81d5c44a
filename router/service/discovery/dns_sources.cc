// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/dns_sources.h"

#include <set>
#include <utility>

namespace kvcast::router {

DnsSources::DnsSources(DnsSourcesConfig config, Fleet& fleet, SourceLog& log)
    : config_(std::move(config)), fleet_(fleet), log_(log) {}

DnsSources::~DnsSources() { Stop(); }

void DnsSources::Set(std::vector<DnsSource> sources) {
  {
    const MutexLock lock(mutex_);
    wanted_ = std::move(sources);
  }
  if (repeater_ != nullptr) repeater_->CallSoon();
}

void DnsSources::Begin() {
  repeater_ = std::make_unique<Repeater>(0, kPeriodMs, [this] { LookUpAll(); });
}

bool DnsSources::has_names() const {
  const MutexLock lock(mutex_);
  return !wanted_.empty();
}

std::vector<SourceListReport> DnsSources::reports() const {
  const MutexLock lock(mutex_);
  return reports_;
}

void DnsSources::LookUpAll() {
  std::vector<DnsSource> wanted;
  {
    const MutexLock lock(mutex_);
    wanted = wanted_;
  }
  std::set<std::string> lookups;
  for (const DnsSource& source : wanted) lookups.insert(source.lookup);
  for (auto at = lists_.begin(); at != lists_.end();) {
    if (lookups.contains(at->first)) {
      ++at;
      continue;
    }
    at->second.Clear();
    at = lists_.erase(at);
  }
  std::vector<SourceListReport> reports;
  for (const DnsSource& source : wanted) {
    if (stopping_) return;
    TargetList& list =
        lists_.try_emplace(source.lookup, source.lookup, config_.lists, fleet_, log_).first->second;
    LookUp(source, list);
    reports.push_back(list.Follow());
  }
  const MutexLock lock(mutex_);
  reports_ = std::move(reports);
}

void DnsSources::LookUp(const DnsSource& source, TargetList& list) {
  const auto targets = config_.look(source.lookup);
  if (!targets.ok()) return list.NoteFailure(targets.status().message());
  list.Set(*targets, source.source_of);
}

}  // namespace kvcast::router
