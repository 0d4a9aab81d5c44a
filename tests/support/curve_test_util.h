// Keys and access lists for tests with CURVE.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "kvcast/stream/curve.h"

namespace kvcast::stream {

inline CurveKeyPair NewKeys() { return CurveKeyPair::Generate().value(); }

// A folder that is removed at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kvcast-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string File(const std::string& name) const { return (path_ / name).string(); }
  // Replaces the file in one step.
  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    const std::string path = File(name);
    std::ofstream(path + ".new") << text;
    EXPECT_EQ(chmod((path + ".new").c_str(), mode), 0);
    std::filesystem::rename(path + ".new", path);
    return path;
  }

 private:
  std::filesystem::path path_;
};

// The keys of a server, and its access list in a file.
class TestServer {
 public:
  // `lines`: the access list.
  explicit TestServer(const std::string& lines = "") {
    SetList(lines);
    server_ = {NewKeys(), AccessList::Load(folder_.File("clients")).value()};
  }
  void SetList(const std::string& lines) const { folder_.Write("clients", lines); }
  const CurveServer& server() const { return server_; }
  const std::string& key() const { return server_.keys.public_key; }

 private:
  TemporaryFolder folder_;
  CurveServer server_;
};

inline std::string Line(const std::string& roles, const CurveKeyPair& client) {
  return roles + " " + client.public_key + " test\n";
}

inline constexpr char kAllRoles[] = "subscribe,replay,snapshot";

}  // namespace kvcast::stream
