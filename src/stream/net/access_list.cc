// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <utility>

#include "kvcast/stream/curve.h"
#include "src/base/mutex.h"
#include "src/stream/net/curve_roles.h"

namespace kvcast {
namespace {

Status BadList(const std::string& path, const std::string& error) {
  return {StatusCode::kInvalidArgument, path + ": " + error};
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
    if (was_read_ && text_ == *text) return Status();
    Result<CurveRoles> roles = ParseCurveRoles(*text);
    if (!roles.ok()) return BadList(path_, roles.status().message());
    was_read_ = true;
    text_ = std::move(text).value();
    roles_ = std::move(roles).value();
    return Status();
  }
  bool Allows(CurveRole role, std::string_view key) const {
    MutexLock lock(mutex_);
    const auto client = roles_.find(key);
    return client != roles_.end() && (client->second & CurveRoleBit(role)) != 0;
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
  bool was_read_ KV_GUARDED_BY(mutex_) = false;
  std::string text_ KV_GUARDED_BY(mutex_);  // content of the file
  CurveRoles roles_ KV_GUARDED_BY(mutex_);
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
