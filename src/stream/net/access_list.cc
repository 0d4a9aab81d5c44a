// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <utility>

#include "kvcast/stream/curve.h"
#include "src/base/mutex.h"
#include "src/stream/net/curve_clients.h"

namespace kvcast {
namespace {

Status BadList(const std::string& path, const std::string& why) {
  return {StatusCode::kInvalidArgument, path + ": " + why};
}

Result<std::string> ReadList(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(AccessList::kMaxFileBytes + 1, '\0');
  if (!file) return BadList(path, "cannot be read");
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return BadList(path, "cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > AccessList::kMaxFileBytes) return BadList(path, "larger than 1 MiB");
  return text;
}

}  // namespace

class AccessList::Impl {
 public:
  explicit Impl(std::string path) : path_(std::move(path)) {}

  Status Read() {
    Result<std::string> text = ReadList(path_);
    if (!text.ok()) return text.status();
    MutexLock lock(mutex_);
    if (read_ && text_ == *text) return Status();
    Result<CurveClients> clients = ParseCurveClients(*text);
    if (!clients.ok()) return BadList(path_, clients.status().message());
    read_ = true;
    text_ = std::move(text).value();
    clients_ = std::move(clients).value();
    return Status();
  }
  bool Allows(CurveRole role, std::string_view key) const {
    MutexLock lock(mutex_);
    const auto client = clients_.find(key);
    return client != clients_.end() && (client->second & CurveRoleBit(role)) != 0;
  }
  void CountFailure() {
    MutexLock lock(mutex_);
    ++failed_;
  }
  uint64_t failed() const {
    MutexLock lock(mutex_);
    return failed_;
  }

 private:
  const std::string path_;
  mutable Mutex mutex_;
  bool read_ KV_GUARDED_BY(mutex_) = false;
  std::string text_ KV_GUARDED_BY(mutex_);  // content of the file
  CurveClients clients_ KV_GUARDED_BY(mutex_);
  uint64_t failed_ KV_GUARDED_BY(mutex_) = 0;
};

AccessList::AccessList(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AccessList::~AccessList() = default;

Result<std::shared_ptr<AccessList>> AccessList::Load(const std::string& path) {
  auto impl = std::make_unique<Impl>(path);
  if (Status status = impl->Read(); !status.ok()) return status;
  return std::shared_ptr<AccessList>(new AccessList(std::move(impl)));
}

bool AccessList::Allows(CurveRole role, std::string_view public_key) const {
  return impl_->Allows(role, public_key);
}

Status AccessList::Refresh() {
  const Status read = impl_->Read();
  if (!read.ok()) impl_->CountFailure();
  return read;
}

uint64_t AccessList::failed_refreshes() const { return impl_->failed(); }

}  // namespace kvcast
