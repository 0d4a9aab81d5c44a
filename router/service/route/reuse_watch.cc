// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/reuse_watch.h"

#include <algorithm>

namespace kvcast::router {
namespace {

std::string GroupText(const ReuseDiagnosis& diagnosis, const std::vector<GroupSpec>& groups) {
  if (!diagnosis.group) return "an unknown group";
  const auto group = static_cast<size_t>(*diagnosis.group);
  std::string text = "group " + std::to_string(group);
  if (group < groups.size() && groups[group].kind != SpecKind::kUnknown) {
    text += " (" + std::string(SpecKindName(groups[group].kind)) + ")";
  }
  return text;
}

std::string CauseText(const ReuseDiagnosis& diagnosis, const std::vector<GroupSpec>& groups) {
  const std::string group = GroupText(diagnosis, groups);
  const std::string alignment = std::to_string(diagnosis.alignment);
  switch (*diagnosis.cause) {
    case ReuseCause::kNeverAnnounced:
      return "no store event has named " + group + ", and nothing can be reused without this group";
    case ReuseCause::kNeverStored:
      return group + " stores no block that a hit on the prompts' prefixes needs";
    case ReuseCause::kEvictedFirst:
      return group + " removes its blocks while other groups keep theirs";
    case ReuseCause::kAlignmentTooCoarse:
      return "hits end at multiples of " + alignment +
             " tokens, and the shared prefixes end before a multiple that can be served; " + group +
             " has the largest blocks";
    case ReuseCause::kToldAlignmentWrong:
      return "the alignment was registered as " + alignment +
             " tokens, but the blocks of the groups give " +
             std::to_string(diagnosis.group_alignment);
    case ReuseCause::kKeyDiffers:
      break;
  }
  return "prompts with equal tokens have different salts or adapters";
}

}  // namespace

std::string_view DiagnosisName(const ReuseDiagnosis& diagnosis) {
  if (diagnosis.cause) return ReuseCauseName(*diagnosis.cause);
  return diagnosis.enough_data() ? "none" : "not_enough_data";
}

std::string ExplainDiagnosis(const ReuseDiagnosis& diagnosis,
                             const std::vector<GroupSpec>& groups) {
  if (diagnosis.cause) return CauseText(diagnosis, groups);
  if (!diagnosis.enough_data()) {
    return "only " + std::to_string(diagnosis.tested) + " prompts were tested, and at least " +
           std::to_string(kMinTestedPrompts) + " are needed";
  }
  return diagnosis.lost * 2 <= diagnosis.tested ? "the prompts' prefixes can be reused"
                                                : "no known cause explains the missing reuse";
}

void ReuseWatch::Refresh(const PrefixIndex& index, const FleetList& fleet,
                         const std::function<int64_t()>& steady_ms) {
  const int64_t end = steady_ms() + kRoundMs;
  Prune(fleet);
  for (size_t i = 0; i < fleet.workers.size(); ++i) {
    const FleetWorker& worker = *fleet.workers[next_++ % fleet.workers.size()];
    uint64_t resets;
    {
      const MutexLock lock(mutex_);
      resets = watched_[worker.id].resets;
    }
    ReuseDiagnosis found = index.Diagnose(worker.id);
    {
      const MutexLock lock(mutex_);
      const auto it = watched_.find(worker.id);
      // The worker may have been removed or restarted since the lock was released.
      if (it != watched_.end() && it->second.resets == resets)
        it->second.diagnosis = std::move(found);
    }
    if (steady_ms() >= end) return;
  }
}

// Drops removed workers. Feedback may create an entry for a worker after its removal.
void ReuseWatch::Prune(const FleetList& fleet) {
  const MutexLock lock(mutex_);
  if (watched_.size() <= fleet.workers.size()) return;
  std::erase_if(watched_, [&](const auto& entry) {
    return std::ranges::none_of(fleet.workers,
                                [&](const auto& worker) { return worker->id == entry.first; });
  });
}

void ReuseWatch::Note(WorkerId worker, std::string_view kind, const ReuseAnswer& answer) {
  const MutexLock lock(mutex_);
  Watched& watched = watched_[worker];
  const std::string cause(DiagnosisName(DiagnosisOf(watched)));
  ReuseTotals& totals = watched.totals[{kind.empty() ? "none" : std::string(kind), cause}];
  ++totals.requests;
  totals.predicted_tokens += static_cast<uint64_t>(std::max<int64_t>(answer.predicted_tokens, 0));
  totals.reused_tokens += static_cast<uint64_t>(std::max<int64_t>(answer.reused_tokens, 0));
  if (answer.predicted_tokens <= 0) return;
  if (watched.answers.size() < kAnswers) {
    watched.answers.push_back(answer);
  } else {
    watched.answers[watched.answered % kAnswers] = answer;
  }
  ++watched.answered;
}

void ReuseWatch::Reset(WorkerId worker) {
  const MutexLock lock(mutex_);
  Watched& watched = watched_[worker];
  watched.diagnosis = {};
  watched.answers.clear();
  watched.answered = 0;
  ++watched.resets;
}

void ReuseWatch::Remove(WorkerId worker) {
  const MutexLock lock(mutex_);
  watched_.erase(worker);
}

ReuseDiagnosis ReuseWatch::DiagnosisOf(const Watched& watched) {
  ReuseDiagnosis diagnosis = watched.diagnosis;
  ApplyAnswers(watched.answers, diagnosis);
  return diagnosis;
}

ReuseDiagnosis ReuseWatch::diagnosis(WorkerId worker) const {
  const MutexLock lock(mutex_);
  const auto it = watched_.find(worker);
  return it == watched_.end() ? ReuseDiagnosis() : DiagnosisOf(it->second);
}

ReuseByKindAndCause ReuseWatch::totals(WorkerId worker) const {
  const MutexLock lock(mutex_);
  const auto it = watched_.find(worker);
  return it == watched_.end() ? ReuseByKindAndCause() : it->second.totals;
}

}  // namespace kvcast::router
