// A temporary folder is removed with its object. If a process was killed, the next process removes
// the folder of the killed process.
// SPDX-License-Identifier: Apache-2.0
#include "apps/support/temporary_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

namespace kvcast::tools {
namespace {

namespace fs = std::filesystem;

struct TemporaryFolderTest : ::testing::Test {
  TemporaryFolderTest() { setenv("TMPDIR", parent.c_str(), 1); }
  ~TemporaryFolderTest() override {
    unsetenv("TMPDIR");
    fs::remove_all(parent);
  }
  static fs::path MakeParent() {
    std::string path = ::testing::TempDir() + "/temporary-folder-test-XXXXXX";
    return mkdtemp(path.data());
  }
  size_t Folders() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(parent), fs::directory_iterator()));
  }
  static TemporaryFolder Make(const std::string& prefix) {
    auto folder = TemporaryFolder::Create(prefix);
    EXPECT_TRUE(folder.ok()) << folder.status().ToString();
    return std::move(folder).value();
  }
  // Makes a folder with a file in another process, and kills the process.
  static void LeaveFolder(const std::string& prefix) {
    const pid_t child = fork();
    if (child == 0) {
      const TemporaryFolder folder = Make(prefix);
      std::ofstream(folder.path() + "/content") << "content";
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  const fs::path parent = MakeParent();
};

TEST_F(TemporaryFolderTest, IsRemovedWithItsObject) {
  std::optional<TemporaryFolder> folder = Make("a");
  EXPECT_EQ(fs::status(folder->path()).permissions(), fs::perms::owner_all);
  std::ofstream(folder->path() + "/content") << "content";
  folder.reset();
  EXPECT_EQ(Folders(), 0u);
}

TEST_F(TemporaryFolderTest, TheFolderOfAKilledProcessIsRemoved) {
  LeaveFolder("a");
  EXPECT_EQ(Folders(), 1u);
  const TemporaryFolder folder = Make("a");
  EXPECT_EQ(Folders(), 1u);
  EXPECT_TRUE(fs::exists(folder.path()));
}

TEST_F(TemporaryFolderTest, OtherFoldersStay) {
  const TemporaryFolder used = Make("a");
  LeaveFolder("ab");
  const fs::path without_lock = parent / "a123456";
  fs::create_directory(without_lock);
  const fs::path link = parent / "a654321";
  fs::create_directory_symlink(used.path(), link);
  const TemporaryFolder folder = Make("a");
  EXPECT_EQ(Folders(), 5u);
  EXPECT_TRUE(fs::exists(used.path() + "/lock"));
}

TEST_F(TemporaryFolderTest, AMovedFolderStays) {
  TemporaryFolder first = Make("a");
  const TemporaryFolder second = std::move(first);
  const TemporaryFolder folder = Make("a");
  EXPECT_TRUE(fs::exists(second.path()));
  EXPECT_EQ(Folders(), 2u);
}

TEST_F(TemporaryFolderTest, WithoutAParentThereIsAnError) {
  setenv("TMPDIR", (parent / "missing").c_str(), 1);
  EXPECT_FALSE(TemporaryFolder::Create("a").ok());
}

}  // namespace
}  // namespace kvcast::tools
