// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/state_saver.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "src/base/clock.h"

namespace kvcast::router {
namespace {

std::string NameOf(size_t shard) { return "shard-" + std::to_string(shard) + ".state"; }

}  // namespace

StateSaver::StateSaver(const StateFolder& folder, SavedRouter router, SavedWorkers& saved,
                       Logger* log)
    : folder_(folder),
      router_(std::move(router)),
      saved_(saved),
      log_(log),
      began_ms_(SteadyMs()) {}

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
  if (SteadyMs() - began_ms_ >= kKeepUnclaimedMs) saved_.DropFolder();
  const std::set<std::string> kept = saved_.KeepFiles(folder_);
  for (size_t shard = 0; shard < router_.index.shards(); ++shard) {
    const Status saved = SaveShard(shard, now);
    if (status.ok()) status = saved;
  }
  if (status.ok()) RemoveOthers(kept);
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
  now.saved_at_ms = status.ok() ? static_cast<int64_t>(router_.now() * 1000) : report_.saved_at_ms;
  report_ = now;
  return status;
}

Status StateSaver::SaveShard(size_t shard, SaveReport& report) {
  const std::string name = NameOf(shard);
  auto file = folder_.NewFile(name);
  if (!file.ok()) return file.status();
  ShardSave save;
  save.Begin(router_, shard, file->get());
  report.workers += save.workers();
  report.pause_seconds = std::max(report.pause_seconds, save.pause_seconds());
  if (Status status = save.Wait(); !status.ok()) {
    folder_.Remove(name + ".tmp");
    return {status.code(), folder_.PathOf(name) + ": " + status.message()};
  }
  struct stat info = {};
  if (fstat(file->get(), &info) == 0) report.bytes += info.st_size;
  return folder_.Commit(name);
}

// Removes the files of a router that had more shards, and the files that are not kept any more. A
// save that is not complete may lack the state of a restored worker, which a kept file has.
void StateSaver::RemoveOthers(const std::set<std::string>& kept) {
  for (const std::string& name : folder_.Names(".state")) {
    bool is_own = kept.contains(name);
    for (size_t shard = 0; shard < router_.index.shards(); ++shard) is_own |= name == NameOf(shard);
    if (!is_own) folder_.Remove(name);
  }
}

}  // namespace kvcast::router
