// TemporaryFolder: a folder of mode 0700 for the time of one command.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "kvcast/core/status.h"
#include "src/base/descriptor.h"

namespace kvcast::tools {

// The destructor removes the folder and its content. A process that is killed leaves its folder,
// and the next Create with the same prefix by the same user removes it.
class TemporaryFolder {
 public:
  // Makes a folder in the system's folder for temporary files. Its name begins with `prefix`.
  // Error: the folder cannot be made.
  static Result<TemporaryFolder> Create(const std::string& prefix);
  TemporaryFolder(TemporaryFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: moved to another object
  Descriptor lock_;   // of the file "lock" in the folder; locked as long as this object exists
};

}  // namespace kvcast::tools
