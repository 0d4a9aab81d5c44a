// SPDX-License-Identifier: Apache-2.0
#include "python/src/local_indexer.h"

#include <algorithm>
#include <functional>

#include "src/base/clock.h"

namespace kvcast::python {
namespace {

using router::WorkerIngest;
using router::WorkerRegistration;

uint64_t FingerprintOf(std::span<const uint8_t> payload) {
  const auto* data = reinterpret_cast<const char*>(payload.data());
  return std::hash<std::string_view>()({data, payload.size()});
}

std::string Quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

}  // namespace

LocalIndexer::LocalIndexer()
    : queries_(
          index_, [this](WorkerId worker) { return StatusOf(worker); }, WallSeconds) {}

std::shared_ptr<const LocalView> LocalIndexer::view() const {
  const MutexLock lock(view_mutex_);
  return view_;
}

Result<std::shared_ptr<LocalSource>> LocalIndexer::SourceOf(std::string_view name) const {
  const auto current = view();
  const auto it = current->by_name.find(name);
  if (it != current->by_name.end()) return it->second;
  return Status(StatusCode::kNotFound, "source: unknown source " + Quoted(name));
}

bool LocalIndexer::Has(std::string_view name) const { return view()->by_name.contains(name); }

SourceStatus LocalIndexer::StatusOf(WorkerId worker) const {
  const auto current = view();
  const auto it = current->by_id.find(worker);
  if (it == current->by_id.end()) return {};
  const MutexLock lock(it->second->status_mutex);
  return it->second->status;
}

Status LocalIndexer::Add(const WorkerRegistration& registration) {
  const MutexLock admin(admin_mutex_);
  const std::string& name = registration.worker.name;
  auto next = std::make_shared<LocalView>(*view());
  auto source = std::make_shared<LocalSource>();
  source->key = {registration.instance.empty() ? name : registration.instance,
                 registration.data_parallel_rank};
  if (next->by_name.contains(name)) {
    return {StatusCode::kFailedPrecondition, "source: two sources are named " + Quoted(name)};
  }
  const bool used = std::ranges::any_of(
      next->sources, [&](const auto& other) { return other->key == source->key; });
  if (used) {
    return {StatusCode::kFailedPrecondition, "source: two sources have the worker " +
                                                 Quoted(source->key.first) + " with rank " +
                                                 std::to_string(source->key.second)};
  }
  const WorkerId id(next_id_);
  auto ingest = WorkerIngest::Create(id, registration, index_);
  if (!ingest.ok()) return ingest.status();
  ++next_id_;
  source->ingest = std::move(ingest).value();
  next->sources.push_back(source);
  next->by_id.emplace(id, source);
  next->by_name.emplace(name, source);
  const MutexLock lock(view_mutex_);
  view_ = std::move(next);
  return {};
}

Status LocalIndexer::Remove(std::string_view name) {
  const MutexLock admin(admin_mutex_);
  const auto found = SourceOf(name);
  if (!found.ok()) return found.status();
  const auto& source = *found;
  auto next = std::make_shared<LocalView>(*view());
  std::erase(next->sources, source);
  next->by_id.erase(source->ingest->id());
  next->by_name.erase(next->by_name.find(name));
  {
    const MutexLock lock(view_mutex_);
    view_ = std::move(next);
  }
  // The lock waits for the end of a batch that is being applied. A later batch finds no worker in
  // the index.
  const MutexLock order(source->order);
  index_.RemoveWorker(source->ingest->id());
  return {};
}

void LocalIndexer::ShowStatus(LocalSource& source) {
  const MutexLock lock(source.status_mutex);
  source.status = source.sequence.status();
  source.status.replacements = source.ingest->replacements();
  source.numbered = source.sequence.numbered();
}

void LocalIndexer::Drop(LocalSource& source, ResetReason reason) {
  source.sequence.Reset(reason);
  ShowStatus(source);
  source.ingest->OnReset(reason);
}

Result<LocalApplied> LocalIndexer::Apply(std::string_view name, std::span<const uint8_t> payload,
                                         std::optional<uint64_t> seq) {
  const auto found = SourceOf(name);
  if (!found.ok()) return found.status();
  LocalSource& source = **found;
  if (seq && *seq == UINT64_MAX) {
    return Status(StatusCode::kInvalidArgument, "seq: must be below 2^64 - 1");
  }
  const MutexLock order(source.order);
  SequenceState& sequence = source.sequence;
  const uint64_t lost_before = sequence.status().lost;
  const auto step = sequence.Begin(seq, FingerprintOf(payload));
  if (step == SequenceState::Step::kConflict) {
    ShowStatus(source);
    return Status(StatusCode::kFailedPrecondition,
                  "seq: " + std::to_string(*seq) +
                      " was applied with other content, or too long ago to compare; if the "
                      "publisher has restarted, call reset first");
  }
  // A query must not read the index after the drop together with a status from before the drop: its
  // answer would be exact without the dropped blocks. So the new status is shown before the drop.
  ShowStatus(source);
  LocalApplied applied{.seq = sequence.seq(), .lost = sequence.status().lost - lost_before};
  BatchResult result = BatchResult::kApplied;
  if (step == SequenceState::Step::kDuplicate) {
    applied.applied = false;
  } else {
    if (step == SequenceState::Step::kReset) source.ingest->OnReset(ResetReason::kLostBatches);
    result = source.ingest->OnBatch(payload, Seq(sequence.seq()));
    if (sequence.End(result)) Drop(source, ResetReason::kDoubt);
    ShowStatus(source);
  }
  applied.state = source.ingest->State(sequence.status().state);
  if (result == BatchResult::kUndecodable) {
    return Status(StatusCode::kMalformed,
                  "payload: not a batch; the blocks of " + Quoted(name) + " were dropped");
  }
  if (result == BatchResult::kTooLarge) {
    return Status(StatusCode::kLimit,
                  "max_residencies: the source has more blocks; the blocks of " + Quoted(name) +
                      " were dropped");
  }
  return applied;
}

Status LocalIndexer::Reset(std::string_view name, ResetReason reason) {
  const auto found = SourceOf(name);
  if (!found.ok()) return found.status();
  LocalSource& source = **found;
  const MutexLock order(source.order);
  Drop(source, reason);
  return {};
}

Result<LocalAnswers> LocalIndexer::Find(const router::Query& query) const {
  const auto current = view();
  router::SourceList sources;
  for (const auto& source : current->sources) {
    const bool serves = query.model.empty() || source->ingest->model() == query.model;
    if (serves) sources.push_back(source->ingest);
  }
  if (sources.empty() && !query.model.empty()) {
    return Status(StatusCode::kNotFound, "model: no source serves " + query.model);
  }
  auto answers = queries_.Answer(query, sources);
  if (!answers.ok()) return answers.status();
  LocalAnswers result{.answers = std::move(answers).value(), .keys = {}};
  result.keys.reserve(result.answers.size());
  for (router::QueryAnswer& answer : result.answers) {
    const auto it = current->by_id.find(answer.match.worker);
    result.keys.emplace_back(it->second, &it->second->key);  // keeps the source alive
    const MutexLock lock(it->second->status_mutex);
    if (!it->second->numbered) answer.reason += ": apply got no sequence number";
  }
  return result;
}

Result<SourceStatus> LocalIndexer::status(std::string_view name) const {
  const auto found = SourceOf(name);
  if (!found.ok()) return found.status();
  const MutexLock lock((*found)->status_mutex);
  SourceStatus status = (*found)->status;
  status.state = (*found)->ingest->State(status.state);
  return status;
}

Result<std::vector<GroupSpec>> LocalIndexer::groups(std::string_view name) const {
  const auto found = SourceOf(name);
  if (!found.ok()) return found.status();
  return index_.Groups((*found)->ingest->id());
}

std::vector<std::string> LocalIndexer::names() const {
  std::vector<std::string> names;
  for (const auto& source : view()->sources) names.push_back(source->ingest->name());
  return names;
}

void LocalIndexer::Reclaim() {
  while (index_.Reclaim()) {
  }
}

}  // namespace kvcast::python
