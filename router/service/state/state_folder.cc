// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/state_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "src/hash/seeded_hash.h"

namespace kvcast::router {
namespace {

constexpr mode_t kOwnerFolder = 0700;
constexpr mode_t kOwnerFile = 0600;
constexpr size_t kSecretDigits = 16;

Status Failed(const std::string& path, const char* what) {
  return {StatusCode::kUnavailable, path + ": " + what + ": " + std::strerror(errno)};
}

// Not ok: users other than the owner have access.
Status CheckPrivate(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return Failed(path, "cannot be read");
  if ((info.st_mode & 077) == 0) return Status();
  return {StatusCode::kInvalidArgument,
          path + ": other users have access; set the mode to 0700 (folder) or 0600 (file)"};
}

Status WriteAll(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(path, "cannot be written");
    content.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? Status() : Failed(path, "cannot be written");
}

std::string SecretText(uint64_t secret) {
  std::string text;
  for (size_t shift = 4 * kSecretDigits; shift > 0; shift -= 4) {
    text += "0123456789abcdef"[secret >> (shift - 4) & 15];
  }
  return text + "\n";
}

}  // namespace

Result<StateFolder> StateFolder::Open(const std::string& path) {
  if (mkdir(path.c_str(), kOwnerFolder) != 0 && errno != EEXIST) {
    return Failed(path, "cannot be made");
  }
  if (Status status = CheckPrivate(path); !status.ok()) return status;
  const std::string lock_path = path + "/lock";
  Descriptor lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kOwnerFile));
  if (lock.get() < 0) return Failed(lock_path, "cannot be made");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(StatusCode::kFailedPrecondition, path + ": another process uses this folder");
  }
  StateFolder folder(path, std::move(lock));
  for (const std::string& name : folder.Names(".tmp")) folder.Remove(name);
  if (Status status = folder.ReadSecret(); !status.ok()) return status;
  return folder;
}

Status StateFolder::ReadSecret() {
  auto text = Read("secret", 2 * kSecretDigits);
  if (text.status().code() == StatusCode::kNotFound) {
    if (Status status = Write("secret", SecretText(NewSeed())); !status.ok()) return status;
    text = Read("secret", 2 * kSecretDigits);
  }
  if (!text.ok()) return text.status();
  if (Status status = CheckPrivate(PathOf("secret")); !status.ok()) return status;
  const char* const end = text->data() + std::min(text->size(), kSecretDigits);
  const auto [parsed, error] = std::from_chars(text->data(), end, secret_, 16);
  if (error == std::errc() && parsed == end && text->size() == kSecretDigits + 1) return Status();
  return {StatusCode::kInvalidArgument,
          PathOf("secret") + ": not 16 hex digits; remove the folder to start without saved state"};
}

Status StateFolder::SetSecret(uint64_t secret) {
  Status status = Write("secret", SecretText(secret));
  if (status.ok()) secret_ = secret;
  return status;
}

std::vector<std::string> StateFolder::Names(std::string_view suffix) const {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path_.c_str()), closedir);
  while (folder != nullptr) {
    const dirent* const entry = readdir(folder.get());
    if (entry == nullptr) break;
    if (std::string_view(entry->d_name).ends_with(suffix)) names.emplace_back(entry->d_name);
  }
  std::ranges::sort(names);
  return names;
}

Result<Descriptor> StateFolder::NewFile(std::string_view name) const {
  const std::string path = PathOf(name) + ".tmp";
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kOwnerFile));
  if (file.get() < 0) return Failed(path, "cannot be made");
  return file;
}

Status StateFolder::Commit(std::string_view name) const {
  const std::string path = PathOf(name);
  if (rename((path + ".tmp").c_str(), path.c_str()) != 0) return Failed(path, "cannot be replaced");
  // The new name must reach the disk too.
  const Descriptor folder(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || fsync(folder.get()) != 0) return Failed(path_, "cannot be written");
  return Status();
}

void StateFolder::Remove(std::string_view name) const { (void)unlink(PathOf(name).c_str()); }

Status StateFolder::Rename(std::string_view from, std::string_view to) const {
  const std::string path = PathOf(from);
  if (rename(path.c_str(), PathOf(to).c_str()) == 0) return Status();
  if (errno == ENOENT) return {StatusCode::kNotFound, path + ": no such file"};
  return Failed(path, "cannot be renamed");
}

Status StateFolder::Write(std::string_view name, std::string_view content) const {
  auto file = NewFile(name);
  if (!file.ok()) return file.status();
  if (Status status = WriteAll(file->get(), content, PathOf(name)); !status.ok()) return status;
  return Commit(name);
}

Result<std::string> StateFolder::Read(std::string_view name, size_t max_bytes) const {
  const std::string path = PathOf(name);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT)
    return Status(StatusCode::kNotFound, path + ": no such file");
  if (file.get() < 0) return Failed(path, "cannot be read");
  std::string content;
  std::string part(size_t{1} << 16, '\0');
  while (content.size() <= max_bytes) {
    const ssize_t got = read(file.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(path, "cannot be read");
    if (got == 0) return content;
    content.append(part, 0, static_cast<size_t>(got));
  }
  return Status(StatusCode::kLimit, path + ": larger than " + std::to_string(max_bytes) + " bytes");
}

}  // namespace kvcast::router
