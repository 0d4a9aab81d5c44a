// The seed of hash tables is secret: it differs between processes, so no client can choose keys
// that collide.
// SPDX-License-Identifier: Apache-2.0
#include "src/hash/seeded_hash.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

namespace kvcast::router {
namespace {

constexpr char kHashesOfParent[] = "KVCAST_TEST_HASHES";

// The hashes of one number and of one text, as tables use them.
std::string Hashes(std::string* separate = nullptr) {
  const std::string number = std::to_string(SeededNumberHash()(1));
  const std::string text = std::to_string(SeededTextHash()("key"));
  const std::string text128 = std::to_string(HashText128("key").first);
  if (separate != nullptr) {
    separate[0] = number;
    separate[1] = text;
    separate[2] = text128;
  }
  return number + " " + text + " " + text128;
}

// The test runs once more in the child process. The environment there has the hashes of the parent.
TEST(SeededHashDeathTest, EachProcessHasOtherHashes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv(kHashesOfParent, Hashes().c_str(), /*overwrite=*/0);
  const auto compare = [] {
    const std::string parent = getenv(kHashesOfParent);
    std::string own[3];
    Hashes(own);
    for (const std::string& hash : own) {
      if ((" " + parent + " ").find(" " + hash + " ") != std::string::npos) std::exit(1);
    }
    std::exit(0);
  };
  EXPECT_EXIT(compare(), ::testing::ExitedWithCode(0), "");
  unsetenv(kHashesOfParent);
}

// Tables use the low bits or the high bits of a hash. A client may choose numbers that differ only
// in the other bits.
TEST(SeededHash, NumbersThatDifferInFewBitsDifferInAllParts) {
  constexpr size_t kNumbers = 4096;
  const SeededHash hash{0x243F6A8885A308D3};
  for (const int shift : {0, 24, 52}) {
    std::set<uint64_t> low;
    std::set<uint64_t> high;
    for (uint64_t i = 0; i < kNumbers; ++i) {
      low.insert(hash(i << shift) & 0xFFFFF);
      high.insert(hash(i << shift) >> 44);
    }
    EXPECT_GT(low.size(), kNumbers * 9 / 10) << "shift " << shift;
    EXPECT_GT(high.size(), kNumbers * 9 / 10) << "shift " << shift;
  }
}

}  // namespace
}  // namespace kvcast::router
