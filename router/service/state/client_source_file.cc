// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/client_source_file.h"

namespace kvcast::router {
namespace {

constexpr std::string_view kName = "sources.json";
constexpr size_t kMaxBytes = size_t{16} << 20;

}  // namespace

Result<std::string> ClientSourceFile::Read() const {
  auto text = folder_.Read(kName, kMaxBytes);
  if (text.status().code() == StatusCode::kNotFound) return std::string();
  return text;
}

Status ClientSourceFile::Write(const Fleet& fleet) {
  const MutexLock lock(mutex_);
  std::vector<WorkerRegistration> sources;
  for (const FleetView view = fleet.view(); const auto& worker : view->workers) {
    if (worker->added_by == AddedBy::kClient) sources.push_back(worker->config);
  }
  return folder_.Write(kName, encode_(sources));
}

}  // namespace kvcast::router
