// StateFolder: the folder in which a router keeps its saved state (`kvcast router --state`).
//
// Content: `lock` (held while a router uses the folder), `secret` (of the content keys; the saved
// names of blocks are useless without it), `shard-N.state` (see state_file.h), `kept-*.state`
// (see SavedWorkers::KeepFiles), `sources.json` (the sources that clients have registered),
// `sources.json.refused` (see ClientSourceFile::Refuse), and `*.tmp` (files that are not complete).
// Only the owner may read the folder, because it holds hash seeds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "src/base/descriptor.h"

namespace kvcast::router {

// Thread-safe. All errors are one line that names the file.
class StateFolder {
 public:
  // Makes the folder and the secret if they do not exist. Errors: kInvalidArgument if other users
  // have access to the folder or the secret, or if the secret is damaged; kFailedPrecondition if
  // another process uses the folder; kUnavailable if the folder or a file cannot be made or read.
  static Result<StateFolder> Open(const std::string& path);

  uint64_t secret() const { return secret_; }
  // Replaces the secret. The saved states of the folder cannot be used afterwards. kUnavailable:
  // the file cannot be written; the secret stays. Not thread-safe.
  Status SetSecret(uint64_t secret);
  std::string PathOf(std::string_view name) const { return path_ + "/" + std::string(name); }
  // The names of the files that end with `suffix`, sorted.
  std::vector<std::string> Names(std::string_view suffix) const;
  // An open, empty file `NAME.tmp`, for a later Commit.
  Result<Descriptor> NewFile(std::string_view name) const;
  // Replaces the file NAME by `NAME.tmp`, whose content must have reached the disk (fsync). After a
  // crash, the folder has the old file or the new one.
  Status Commit(std::string_view name) const;
  void Remove(std::string_view name) const;
  // Renames a file. The file replaces a file `to`. kNotFound: there is no file `from`.
  Status Rename(std::string_view from, std::string_view to) const;
  // Replaces the content of a file.
  Status Write(std::string_view name, std::string_view content) const;
  // kNotFound: there is no such file. kLimit: it is larger than `max_bytes`.
  Result<std::string> Read(std::string_view name, size_t max_bytes) const;

 private:
  StateFolder(std::string path, Descriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  Status ReadSecret();

  std::string path_;
  Descriptor lock_;
  uint64_t secret_ = 0;
};

}  // namespace kvcast::router
