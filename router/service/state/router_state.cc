// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/router_state.h"

#include <utility>

namespace kvcast::router {

RouterState::RouterState(const StateOptions& options, StateFolder folder, SourceText text_of,
                         ClientSourceFile::Encode encode, Logger* log)
    : period_ms_(options.period_s * 1000),
      folder_(std::move(folder)),
      keys_(folder_.secret()),
      text_of_(text_of),
      log_(log),
      saved_(folder_, text_of, log),
      client_sources_(folder_, encode) {}

Result<std::unique_ptr<RouterState>> RouterState::Open(const StateOptions& options,
                                                       SourceText text_of,
                                                       ClientSourceFile::Encode encode,
                                                       Logger* log) {
  auto folder = StateFolder::Open(options.folder);
  if (!folder.ok()) {
    return Status(folder.status().code(), "state: " + folder.status().message());
  }
  return std::unique_ptr<RouterState>(
      new RouterState(options, std::move(folder).value(), text_of, encode, log));
}

RestoreWorker RouterState::RestorerFor(PrefixIndex& index) {
  return [this, &index](const WorkerRegistration& registration, WorkerIngest& source) {
    return saved_.Restore(index, registration, source);
  };
}

void RouterState::WriteClientSources(const Fleet& fleet) {
  const Status status = client_sources_.Write(fleet);
  if (status.ok() || log_ == nullptr) return;
  log_->Write(log_events::kStateSaveFailed, "", {{"reason", status.message()}});
}

void RouterState::BeginSaving(const PrefixIndex& index, Fleet& fleet, std::function<double()> now) {
  auto saver = std::make_shared<StateSaver>(folder_, index, fleet, text_of_, std::move(now), log_);
  saver->Begin(period_ms_);
  const MutexLock lock(mutex_);
  saver_ = std::move(saver);
}

void RouterState::StopSaving() {
  std::shared_ptr<StateSaver> saver;
  {
    const MutexLock lock(mutex_);
    saver.swap(saver_);
  }
  if (saver != nullptr) saver->SaveAndStop();
}

StateReport RouterState::report() const {
  StateReport report{.save = {}, .restore = saved_.counters()};
  const MutexLock lock(mutex_);
  if (saver_ != nullptr) report.save = saver_->report();
  return report;
}

}  // namespace kvcast::router
