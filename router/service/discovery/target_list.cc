// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/target_list.h"

#include <utility>

namespace kvcast::router {

SourceTemplate WithDefaults(SourceTemplate source_of, const SourceDefaults& defaults) {
  return [source_of = std::move(source_of), defaults](const SourceTarget& target) {
    auto made = source_of(target);
    if (made.ok()) defaults.ApplyTo(*made);
    return made;
  };
}

TargetList::TargetList(std::string list, const TargetListConfig& config, Fleet& fleet,
                       SourceLog& log)
    : list_(std::move(list)),
      event_(config.failed),
      log_(config.log),
      fleet_(fleet),
      sources_(fleet, config.policy, config.kind, config.text_of) {
  sources_.LogTo(log);
}

void TargetList::Set(const std::vector<SourceTarget>& targets, const SourceTemplate& source_of,
                     std::string failure) {
  std::vector<WorkerRegistration> sources;
  size_t errors = 0;
  for (const SourceTarget& target : targets) {
    auto source = source_of(target);
    if (source.ok()) {
      sources.push_back(std::move(source).value());
    } else {
      failure = target.host + ": " + source.status().message();
      ++errors;
    }
  }
  // Two targets may give sources with the same name.
  if (const Status set = sources_.Set(std::move(sources)); !set.ok()) failure = set.message();
  NoteFailure(failure);
  if (errors > 0) errors_ = errors;
}

void TargetList::NoteFailure(const std::string& reason) {
  const bool known = failure_ == reason;
  failure_ = reason;
  errors_ = reason.empty() ? 0 : 1;
  if (known || reason.empty() || log_ == nullptr) return;
  log_->Write(event_, list_, {{"reason", reason}});
}

SourceListReport TargetList::Follow() {
  const SourceSet::Changes changes = sources_.Follow();
  fleet_.BeginPolls();
  return {list_, errors_ + changes.errors.size(), sources_.followed()};
}

void TargetList::Clear() {
  (void)sources_.Set({});  // an empty list is valid
  sources_.Follow();
}

}  // namespace kvcast::router
