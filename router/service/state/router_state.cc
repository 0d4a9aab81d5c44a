// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/router_state.h"

#include <utility>

namespace kvcast::router {

RouterState::RouterState(const StateOptions& options, StateFolder folder,
                         ClientSourceFile::Encode encode, Logger* log)
    : period_ms_(options.period_s * 1000),
      folder_(std::move(folder)),
      log_(log),
      client_sources_(folder_, encode) {}

Result<std::unique_ptr<RouterState>> RouterState::Open(const StateOptions& options,
                                                       ClientSourceFile::Encode encode,
                                                       Logger* log) {
  auto folder = StateFolder::Open(options.folder);
  if (!folder.ok()) {
    return Status(folder.status().code(), "state: " + folder.status().message());
  }
  return std::unique_ptr<RouterState>(
      new RouterState(options, std::move(folder).value(), encode, log));
}

void RouterState::RefuseClientSources(const Status& why) {
  client_sources_.Refuse();
  if (log_ != nullptr) log_->Write(log_events::kStateRefused, "", {{"reason", why.message()}});
}

void RouterState::WriteClientSources(const Fleet& fleet) {
  const Status status = client_sources_.Write(fleet);
  if (status.ok() || log_ == nullptr) return;
  log_->Write(log_events::kStateSaveFailed, "", {{"reason", status.message()}});
}

void RouterState::BeginSaving(SavedRouter router, SavedWorkers& saved) {
  auto saver = std::make_shared<StateSaver>(folder_, std::move(router), saved, log_);
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

SaveReport RouterState::report() const {
  const MutexLock lock(mutex_);
  return saver_ == nullptr ? SaveReport() : saver_->report();
}

}  // namespace kvcast::router
