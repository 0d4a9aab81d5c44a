// SPDX-License-Identifier: Apache-2.0
#include "apps/support/recording_paths.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace kvcast::tools {
namespace {

namespace fs = std::filesystem;

Status AddFolder(const std::string& folder, bool (*is_recording)(const std::string& path),
                 std::string_view kind, std::vector<std::string>& files) {
  const size_t before = files.size();
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored) && is_recording(it->path())) files.push_back(it->path());
  }
  if (error) return {StatusCode::kNotFound, folder + ": " + error.message()};
  if (files.size() == before) {
    return {StatusCode::kNotFound, folder + ": holds no " + std::string(kind)};
  }
  std::sort(files.begin() + static_cast<ptrdiff_t>(before), files.end());
  return Status();
}

}  // namespace

Result<std::vector<std::string>> RecordingPaths(const std::vector<std::string>& paths,
                                                bool (*is_recording)(const std::string& path),
                                                std::string_view kind) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) return Status(StatusCode::kNotFound, path + ": does not exist");
    if (!fs::is_directory(status)) {
      files.push_back(path);
    } else if (Status added = AddFolder(path, is_recording, kind, files); !added.ok()) {
      return added;
    }
  }
  return files;
}

Result<std::vector<std::string>> ExpandFolders(
    const std::vector<std::string>& paths,
    const std::function<Status(const std::string& folder, std::vector<std::string>& files)>&
        add_folder) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
    } else if (Status status = add_folder(path, files); !status.ok()) {
      return status;
    }
  }
  return files;
}

bool HasExtension(std::string_view path, std::string_view extension) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path.ends_with(extension);
}

std::string FirstLine(const std::string& path) {
  // gzopen also reads files that are not compressed.
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), &gzclose);
  std::string line;
  char buffer[1 << 12];
  while (file && gzgets(file.get(), buffer, sizeof buffer) != nullptr) {
    line += buffer;
    if (line.ends_with('\n')) {
      line.pop_back();
      break;
    }
  }
  return line;
}

}  // namespace kvcast::tools
