// Each damage of a file of saved state is found: every changed bit, every length, and a disk that
// fills up at any place.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "router/index/index_image.h"
#include "router/service/state/state_file.h"
#include "src/base/descriptor.h"
#include "tests/support/content_events.h"
#include "tests/support/curve_test_util.h"

namespace kvcast::router {
namespace {

using testing::Batch;
using testing::Hash;
using testing::StoreTokens;
using testing::Tokens;

constexpr WorkerId kFirst{1};
constexpr WorkerId kSecond{2};
constexpr uint64_t kSecretCheck = 77;

// A shard with two workers of two groups.
class StateDamageTest : public ::testing::Test {
 protected:
  StateDamageTest() {
    for (const WorkerId id : {kFirst, kSecond}) {
      WorkerConfig config;
      config.name = "worker-" + std::to_string(id.value);
      config.groups = {{.kind = SpecKind::kFullAttention, .block_size = 4},
                       {.kind = SpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 12}};
      EXPECT_TRUE(index_.AddWorker(id, config).ok());
    }
    Store(kFirst, 1400);
    Store(kSecond, 900);
  }
  void Store(WorkerId worker, uint64_t blocks) {
    for (const int64_t group : {0, 1}) {
      // The hashes are spread over their range, like the hashes of an engine.
      std::vector<BlockHash> hashes;
      for (uint64_t i = 0; i < blocks; ++i) hashes.push_back(Hash((i + 1) * 0x9E3779B97F4A7C15));
      index_.Apply(worker,
                   Batch(StoreTokens(std::move(hashes), Tokens(5, 4 * static_cast<int64_t>(blocks)),
                                     std::nullopt, group)));
    }
  }
  // Calls `use` with a writer of the shard's state into the file, and the frozen shard.
  void WithWriter(int fd, const std::function<void(StateFileWriter&, const FrozenShard&)>& use) {
    const std::vector<WorkerId> ids = {kFirst, kSecond};
    IndexImage::Freeze(index_, 0, ids, [&](const FrozenShard& frozen) {
      std::vector<SavedWorker> workers;
      for (size_t i = 0; i < ids.size(); ++i) {
        SavedWorker worker;
        worker.registration = "{\"name\": \"worker\"}";
        worker.position = {.epoch = Epoch{1, 2}, .first_seq = 0, .next_seq = 9, .complete = true};
        worker.position.fingerprints = {{.seq = 7, .hash = {1, 2}}, {.seq = 8, .hash = {3, 4}}};
        worker.learned = frozen.learned()[i];
        workers.push_back(std::move(worker));
      }
      StateFileWriter writer(fd, EncodeHead({kSecretCheck, 1'790'000'000'000}, workers));
      use(writer, frozen);
    });
  }
  Descriptor NewFile() const {
    return Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  }
  // Writes the file, and returns its size.
  size_t Write() {
    const Descriptor file = NewFile();
    WithWriter(file.get(), [](StateFileWriter& writer, const FrozenShard& frozen) {
      EXPECT_EQ(writer.Write(frozen), 0);
    });
    EXPECT_TRUE(Opens());
    return std::filesystem::file_size(path_);
  }
  bool Opens() const { return StateFile::Open(path_, kSecretCheck).ok(); }

  stream::TemporaryFolder folder_;
  const std::string path_ = folder_.File("shard-0.state");
  const ContentKeys keys_{3};
  PrefixIndex index_{keys_};
};

TEST_F(StateDamageTest, EachChangedBitIsFound) {
  const size_t size = Write();
  const Descriptor file(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  size_t variants = 0;
  for (off_t at = 0; at < static_cast<off_t>(size); ++at) {
    uint8_t byte = 0;
    ASSERT_EQ(pread(file.get(), &byte, 1, at), 1);
    for (int bit = 0; bit < 8; ++bit, ++variants) {
      const auto changed = static_cast<uint8_t>(byte ^ 1 << bit);
      ASSERT_EQ(pwrite(file.get(), &changed, 1, at), 1);
      ASSERT_FALSE(Opens()) << "bit " << bit << " of byte " << at;
    }
    ASSERT_EQ(pwrite(file.get(), &byte, 1, at), 1);
  }
  EXPECT_GE(variants, 100'000u);
  EXPECT_TRUE(Opens());
}

TEST_F(StateDamageTest, EachOtherLengthIsFound) {
  const size_t size = Write();
  std::filesystem::resize_file(path_, size + 1);
  EXPECT_FALSE(Opens());
  for (size_t length = size; length > 0;) {
    std::filesystem::resize_file(path_, --length);
    ASSERT_FALSE(Opens()) << length;
  }
}

// The limit for the size of files has the effect of a disk that is full after this number of bytes.
TEST_F(StateDamageTest, AFullDiskIsReported) {
  constexpr size_t kStep = 31;
  const size_t size = Write();
  struct rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (size_t room = size % kStep; room <= size; room += kStep) {
    const Descriptor file = NewFile();
    const struct rlimit small = {.rlim_cur = room, .rlim_max = old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    WithWriter(file.get(), [&](StateFileWriter& writer, const FrozenShard& frozen) {
      EXPECT_EQ(writer.Write(frozen), room < size ? EFBIG : 0) << room;
    });
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    ASSERT_EQ(Opens(), room == size) << room;
  }
  std::signal(SIGXFSZ, handler);
}

}  // namespace
}  // namespace kvcast::router
