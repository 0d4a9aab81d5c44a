// SPDX-License-Identifier: Apache-2.0
#include "apps/support/temporary_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace kvcast::tools {
namespace {

constexpr std::string_view kRandomPart = "XXXXXX";  // of the name
constexpr mode_t kOwnerFile = 0600;

Status Failed(const std::string& path) {
  return Status(StatusCode::kUnavailable, path + ": " + std::generic_category().message(errno));
}

std::string LockOf(const std::string& folder) { return folder + "/lock"; }

// This process locks the file before the file gets the name of the lock. Otherwise another process
// could lock the file first, and remove the folder.
Result<Descriptor> MakeLock(const std::string& folder) {
  const std::string path = LockOf(folder);
  const std::string unnamed = path + ".new";
  Descriptor lock(open(unnamed.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kOwnerFile));
  if (lock.get() < 0 || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return Failed(unnamed);
  if (rename(unnamed.c_str(), path.c_str()) != 0) return Failed(path);
  return lock;
}

bool IsOwnFolder(const std::string& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

// Removes the folders of processes that were killed.
void RemoveLeftFolders(const std::filesystem::path& parent, const std::string& prefix) {
  std::error_code ignored;
  std::filesystem::directory_iterator entry(parent, ignored);
  for (; entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(prefix) || name.size() != prefix.size() + kRandomPart.size()) continue;
    if (!IsOwnFolder(entry->path())) continue;
    const Descriptor lock(open(LockOf(entry->path()).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (lock.get() < 0 || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::filesystem::remove_all(entry->path(), ignored);
  }
}

}  // namespace

Result<TemporaryFolder> TemporaryFolder::Create(const std::string& prefix) {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  if (error) return Status(StatusCode::kUnavailable, "temporary files: " + error.message());
  RemoveLeftFolders(parent, prefix);
  std::string path = parent / (prefix + std::string(kRandomPart));
  if (mkdtemp(path.data()) == nullptr) return Failed(path);
  TemporaryFolder folder(std::move(path));
  auto lock = MakeLock(folder.path());
  if (!lock.ok()) return lock.status();
  folder.lock_ = std::move(lock).value();
  return folder;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace kvcast::tools
