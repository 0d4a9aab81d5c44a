// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/client_source_file.h"

#include <limits>

namespace kvcast::router {
namespace {

constexpr std::string_view kName = "sources.json";
constexpr std::string_view kRefusedName = "sources.json.refused";
// Write has no bound, and Read must take every text of Write.
constexpr size_t kMaxBytes = std::numeric_limits<size_t>::max();

}  // namespace

Result<std::string> ClientSourceFile::Read() const {
  auto text = folder_.Read(kName, kMaxBytes);
  if (text.status().code() == StatusCode::kNotFound) return std::string();
  return text;
}

void ClientSourceFile::Refuse() {
  const MutexLock lock(mutex_);
  refused_ = true;
}

void ClientSourceFile::Keep(const WorkerRegistration& source) {
  const MutexLock lock(mutex_);
  kept_.push_back(source);
}

bool ClientSourceFile::Forget(std::string_view name) {
  const MutexLock lock(mutex_);
  return std::erase_if(kept_, [name](const auto& kept) { return kept.worker.name == name; }) > 0;
}

Status ClientSourceFile::Write(const Fleet& fleet) {
  const MutexLock lock(mutex_);
  std::vector<WorkerRegistration> sources;
  const FleetView view = fleet.view();
  for (const auto& worker : view->workers) {
    if (worker->added_by == AddedBy::kClient) sources.push_back(worker->config);
  }
  std::erase_if(kept_, [&view](const auto& kept) {
    const auto worker = view->Find(kept.worker.name);
    return worker != nullptr && worker->added_by == AddedBy::kClient;
  });
  sources.insert(sources.end(), kept_.begin(), kept_.end());
  if (refused_) {
    const Status renamed = folder_.Rename(kName, kRefusedName);
    if (!renamed.ok() && renamed.code() != StatusCode::kNotFound) return renamed;
    refused_ = false;
  }
  return folder_.Write(kName, encode_(sources));
}

}  // namespace kvcast::router
