// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/dns_sources.h"

#include <set>
#include <utility>

namespace kvcast::router {

struct DnsSources::Name {
  DnsSource source;
  SourceSet sources;
  std::string failure;  // of the latest lookup; empty: none
  size_t errors = 0;    // see SourceListReport; without the sources that cannot be followed
};

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
  repeater_ = std::make_unique<Repeater>(0, kPeriodMs, [this] { LookAll(); });
}

bool DnsSources::has_names() const {
  const MutexLock lock(mutex_);
  return !wanted_.empty();
}

std::vector<SourceListReport> DnsSources::reports() const {
  const MutexLock lock(mutex_);
  return reports_;
}

void DnsSources::LookAll() {
  std::vector<DnsSource> wanted;
  {
    const MutexLock lock(mutex_);
    wanted = wanted_;
  }
  std::set<std::string> lookups;
  for (const DnsSource& source : wanted) lookups.insert(source.lookup);
  std::erase_if(names_, [&](auto& entry) {
    if (lookups.contains(entry.first)) return false;
    (void)entry.second->sources.Set({});  // an empty list is valid
    entry.second->sources.Follow();
    return true;
  });
  std::vector<SourceListReport> reports;
  for (DnsSource& source : wanted) {
    if (stopping_) return;
    std::unique_ptr<Name>& name = names_[source.lookup];
    if (name == nullptr) {
      name = std::make_unique<Name>(
          Name{{}, SourceSet(fleet_, config_.policy, "dns", config_.text_of), {}, 0});
      name->sources.LogTo(log_);
    }
    name->source = std::move(source);
    Look(*name);
    const SourceSet::Changes changes = name->sources.Follow();
    reports.push_back(
        {name->source.lookup, name->errors + changes.errors.size(), name->sources.followed()});
  }
  const MutexLock lock(mutex_);
  reports_ = std::move(reports);
}

void DnsSources::Look(Name& name) {
  name.errors = 0;
  const auto targets = config_.look(name.source.lookup);
  if (!targets.ok()) return NoteFailure(name, targets.status().message());
  std::vector<WorkerRegistration> sources;
  std::string failure;
  for (const DnsTarget& target : *targets) {
    auto source = name.source.source_of(target);
    if (source.ok()) {
      sources.push_back(std::move(source).value());
    } else {
      failure = target.host + ": " + source.status().message();
      ++name.errors;
    }
  }
  // Two targets may give sources of one name.
  if (const Status set = name.sources.Set(std::move(sources)); !set.ok()) failure = set.message();
  NoteFailure(name, failure);
}

// `reason` empty: the lookup did not fail.
void DnsSources::NoteFailure(Name& name, const std::string& reason) {
  const bool known = name.failure == reason;
  name.failure = reason;
  if (!reason.empty() && name.errors == 0) name.errors = 1;
  if (known || reason.empty() || config_.log == nullptr) return;
  config_.log->Write(log_events::kSourceLookupFailed, name.source.lookup, {{"reason", reason}});
}

}  // namespace kvcast::router
