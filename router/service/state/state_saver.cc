// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/state_saver.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "router/index/index_image.h"
#include "router/service/state/forked_save.h"
#include "router/service/state/state_file.h"
#include "src/base/clock.h"

namespace kvcast::router {
namespace {

std::string NameOf(size_t shard) { return "shard-" + std::to_string(shard) + ".state"; }

std::vector<SavedWorker> WorkersOf(const std::vector<FollowedWorker>& followed,
                                   const FrozenShard& frozen, SourceText text_of) {
  std::vector<SavedWorker> saved;
  for (size_t i = 0; i < followed.size(); ++i) {
    const FleetWorker& worker = *followed[i].worker;
    saved.push_back({.registration = text_of(worker.config),
                     .position = followed[i].position,
                     .source = worker.source->Save(),
                     .learned = frozen.learned()[i]});
  }
  return saved;
}

}  // namespace

StateSaver::StateSaver(const StateFolder& folder, const PrefixIndex& index, Fleet& fleet,
                       SourceText text_of, std::function<double()> now, Logger* log)
    : folder_(folder),
      index_(index),
      fleet_(fleet),
      text_of_(text_of),
      now_(std::move(now)),
      log_(log) {}

void StateSaver::Begin(int64_t period_ms) {
  repeater_ = std::make_unique<Repeater>(period_ms, period_ms, [this] { (void)Save(); });
}

void StateSaver::SaveAndStop() {
  repeater_.reset();
  (void)Save();
}

SaveReport StateSaver::report() const {
  const MutexLock lock(mutex_);
  return report_;
}

Status StateSaver::Save() {
  const MutexLock saving(save_mutex_);
  const int64_t begin_ns = SteadyNs();
  SaveReport now;
  Status status;
  for (size_t shard = 0; shard < index_.shards(); ++shard) {
    const Status saved = SaveShard(shard, now);
    if (status.ok()) status = saved;
  }
  if (status.ok()) RemoveOthers();
  now.seconds = static_cast<double>(SteadyNs() - begin_ns) / 1e9;
  if (log_ != nullptr) {
    if (status.ok()) {
      log_->Write(log_events::kStateSaved, "",
                  {{"workers", now.workers}, {"bytes", now.bytes}, {"seconds", now.seconds}});
    } else {
      log_->Write(log_events::kStateSaveFailed, "", {{"reason", status.message()}});
    }
  }
  const MutexLock lock(mutex_);
  now.saves = report_.saves + 1;
  now.errors = report_.errors + (status.ok() ? 0 : 1);
  now.saved_at_ms = status.ok() ? static_cast<int64_t>(now_() * 1000) : report_.saved_at_ms;
  report_ = now;
  return status;
}

Status StateSaver::SaveShard(size_t shard, SaveReport& report) {
  const std::string name = NameOf(shard);
  auto file = folder_.NewFile(name);
  if (!file.ok()) return file.status();
  const StateHead head = {.secret_check = SecretCheck(folder_.secret()),
                          .saved_at_ms = static_cast<int64_t>(now_() * 1000)};
  // Both outlive the child.
  std::optional<StateFileWriter> writer;
  ForkedSave save;
  const int64_t begin_ns = SteadyNs();
  fleet_.BetweenTurns(shard, [&](const std::vector<FollowedWorker>& all) {
    std::vector<FollowedWorker> workers;
    std::ranges::copy_if(all, std::back_inserter(workers),
                         [](const auto& of) { return of.worker->source->CanSave(); });
    std::vector<WorkerId> ids;
    for (const FollowedWorker& of : workers) ids.push_back(of.worker->id);
    report.workers += workers.size();
    IndexImage::Freeze(index_, shard, ids, [&](const FrozenShard& frozen) {
      writer.emplace(file->get(), EncodeHead(head, WorkersOf(workers, frozen, text_of_)));
      save.Begin(*writer, frozen, file->get());
    });
  });
  const double pause = static_cast<double>(SteadyNs() - begin_ns) / 1e9;
  report.pause_seconds = std::max(report.pause_seconds, pause);
  if (Status status = save.Wait(); !status.ok()) {
    folder_.Remove(name + ".tmp");
    return {status.code(), folder_.PathOf(name) + ": " + status.message()};
  }
  struct stat info = {};
  if (fstat(file->get(), &info) == 0) report.bytes += info.st_size;
  return folder_.Commit(name);
}

// Removes the files of a router that had more shards.
void StateSaver::RemoveOthers() {
  for (const std::string& name : folder_.Names(".state")) {
    bool is_own = false;
    for (size_t shard = 0; shard < index_.shards(); ++shard) is_own |= name == NameOf(shard);
    if (!is_own) folder_.Remove(name);
  }
}

}  // namespace kvcast::router
