// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/source_set.h"

#include <algorithm>
#include <set>
#include <utility>

namespace kvcast::router {
namespace {

std::map<std::string, WorkerId, std::less<>> IdsOf(const FleetList& fleet) {
  std::map<std::string, WorkerId, std::less<>> ids;
  for (const auto& worker : fleet.workers) ids.emplace(worker->config.worker.name, worker->id);
  return ids;
}

}  // namespace

Status SourceSet::Set(std::vector<WorkerRegistration> sources) {
  std::set<std::string> names;
  for (const WorkerRegistration& source : sources) {
    const std::string& name = source.worker.name;
    if (!names.insert(name).second) {
      return Status(StatusCode::kFailedPrecondition, "two sources are named " + name);
    }
  }
  names_ = std::move(names);
  wanted_.clear();
  for (WorkerRegistration& source : sources) {
    std::string text = text_of_(source);
    wanted_.emplace_back(std::move(source), std::move(text));
  }
  return Status();
}

SourceSet::Changes SourceSet::Follow() {
  Changes changes;
  const WorkerIds ids = IdsOf(*fleet_.view());
  std::vector<std::string> others;
  for (const auto& [name, source] : followed_) {
    if (!names_.contains(name)) others.push_back(name);
  }
  for (const std::string& name : others) Remove(name, changes);
  std::erase_if(errors_, [this](const auto& error) { return !names_.contains(error.first); });
  for (const auto& [source, text] : wanted_) Try(source, text, ids, changes);
  return changes;
}

SourceSet::Changes SourceSet::Retry() {
  Changes changes;
  if (errors_.empty()) return changes;
  const WorkerIds ids = IdsOf(*fleet_.view());
  for (const auto& [source, text] : wanted_) {
    if (errors_.contains(source.worker.name)) Try(source, text, ids, changes);
  }
  return changes;
}

void SourceSet::Try(const WorkerRegistration& source, const std::string& text, const WorkerIds& ids,
                    Changes& changes) {
  const Status status = FollowOne(source, text, ids, changes);
  if (status.ok()) {
    errors_.erase(source.worker.name);
  } else {
    NoteError(source.worker.name, status, changes);
  }
}

Status SourceSet::FollowOne(const WorkerRegistration& source, const std::string& text,
                            const WorkerIds& ids, Changes& changes) {
  const auto known = followed_.find(source.worker.name);
  if (known != followed_.end() && known->second.text == text && IsFollowed(known->second, ids)) {
    return Status();
  }
  // A source that is not allowed does not replace the followed source.
  Status status = CheckSource(source, policy_, SourceOrigin::kOperator);
  if (!status.ok()) return status;
  if (known != followed_.end()) Remove(source.worker.name, changes);
  status = Add(source, text);
  if (status.ok()) ++changes.added;
  return status;
}

bool SourceSet::IsFollowed(const Followed& source, const WorkerIds& ids) const {
  return std::ranges::all_of(source.ranks, [&ids](const Rank& rank) {
    const auto found = ids.find(rank.name);
    return found != ids.end() && found->second == rank.id;
  });
}

void SourceSet::Remove(const std::string& name, Changes& changes) {
  const auto node = followed_.extract(name);
  bool removed = false;
  for (const Rank& rank : node.mapped().ranks) {
    // A client may have removed the worker, and may have added another worker with this name.
    removed |= fleet_.Remove(rank.name, rank.id).ok();
  }
  if (!removed) return;
  ++changes.removed;
  if (log_ != nullptr) log_->NoteRemoved(name, {.list = list_});
}

Status SourceSet::Add(const WorkerRegistration& source, std::string text) {
  const auto ranks = ExpandRanks(source);
  if (!ranks.ok()) return ranks.status();
  if (Status status = fleet_.Add(source); !status.ok()) return status;
  const FleetView view = fleet_.view();
  Followed followed{std::move(text), {}};
  for (const WorkerRegistration& rank : *ranks) {
    const auto worker = view->Find(rank.worker.name);
    // A client may have removed the worker already. The next call of Follow adds it again.
    followed.ranks.push_back({worker ? worker->id : WorkerId(~uint32_t{0}), rank.worker.name});
  }
  followed_[source.worker.name] = std::move(followed);
  if (log_ != nullptr) log_->NoteAdded(source, {.list = list_});
  return Status();
}

void SourceSet::NoteError(const std::string& name, const Status& status, Changes& changes) {
  changes.errors.push_back(status);
  std::string& latest = errors_[name];
  if (latest == status.message()) return;
  latest = status.message();
  if (log_ != nullptr) log_->NoteFailed(name, {.list = list_}, status.message());
}

}  // namespace kvcast::router
