// All pages of a host pool are present after Create, and a move keeps the memory. Errors name the
// field or the failed call.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/transfer/host_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "src/base/huge_pages.h"
#include "tests/transfer/thread_limit.h"

namespace kvcast {
namespace {

size_t PagesOf(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page;
}

size_t PresentPages(const HostPool& pool) {
  std::vector<unsigned char> present(PagesOf(pool.bytes()));
  EXPECT_EQ(mincore(pool.base(), pool.bytes(), present.data()), 0);
  size_t count = 0;
  for (const unsigned char p : present) count += p & 1;
  return count;
}

bool IsZero(const HostPool& pool) {
  return pool.base()[0] == std::byte{0} &&
         std::memcmp(pool.base(), pool.base() + 1, pool.bytes() - 1) == 0;
}

TEST(HostPool, EveryPageIsThereAndZero) {
  constexpr size_t kBytes = 200'000'001;
  for (const HostPages pages : {HostPages::kSmall, HostPages::kTransparentHuge}) {
    for (const int threads : {1, 3}) {
      auto pool = HostPool::Create({.bytes = kBytes, .pages = pages, .threads = threads});
      ASSERT_TRUE(pool.ok()) << pool.status().ToString();
      EXPECT_EQ(pool->bytes(), kBytes);
      EXPECT_EQ(PresentPages(*pool), PagesOf(kBytes));
      EXPECT_TRUE(IsZero(*pool));
      pool->base()[kBytes - 1] = std::byte{1};
    }
  }
}

TEST(HostPool, TheThreadsThatCanStartTouchAllPages) {
  constexpr size_t kBytes = 150'000'000;
  for (const size_t others : {0, 1}) {
    const testing::ThreadLimit limit(others);
    const auto pool = HostPool::Create({.bytes = kBytes, .threads = 4});
    ASSERT_TRUE(pool.ok()) << pool.status().ToString();
    EXPECT_EQ(PresentPages(*pool), PagesOf(kBytes));
  }
}

// Returns the number of reserved huge pages that no mapping has.
size_t FreeHugePages() {
  const std::string folder = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  size_t free = 0;
  size_t taken = 0;
  std::ifstream(folder + "free_hugepages") >> free;
  std::ifstream(folder + "resv_hugepages") >> taken;
  return free - taken;
}

TEST(HostPool, TakesNoMoreReservedHugePagesThanItsBytesNeed) {
  const size_t free = FreeHugePages();
  if (free == 0) GTEST_SKIP() << "not tested: reserved huge pages; none of 2 MiB is free";
  // mmap reserves all pages of a mapping before the first access. This mapping leaves one page.
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << 26;
  const size_t others = (free - 1) * kHugePageBytes;
  void* const taken =
      others > 0 ? mmap(nullptr, others, PROT_READ | PROT_WRITE, kFlags, -1, 0) : nullptr;
  ASSERT_NE(taken, MAP_FAILED);
  {
    const auto pool = HostPool::Create({.bytes = 100, .pages = HostPages::kHuge});
    EXPECT_TRUE(pool.ok()) << pool.status().ToString();
    EXPECT_EQ(FreeHugePages(), 0u);
  }
  EXPECT_EQ(FreeHugePages(), 1u);
  if (others > 0) munmap(taken, others);
}

TEST(HostPool, MovesItsMemory) {
  auto pool = HostPool::Create({.bytes = 100, .pages = HostPages::kSmall});
  ASSERT_TRUE(pool.ok());
  std::byte* const base = pool->base();
  base[99] = std::byte{7};
  HostPool other = std::move(pool).value();
  EXPECT_EQ(other.base(), base);
  auto third = HostPool::Create({.bytes = 5, .pages = HostPages::kSmall});
  ASSERT_TRUE(third.ok());
  *third = std::move(other);
  EXPECT_EQ(third->base()[99], std::byte{7});
  EXPECT_EQ(third->bytes(), 100u);
}

TEST(HostPool, ErrorsNameTheField) {
  EXPECT_EQ(HostPool::Create({}).status().message(), "bytes: must be positive");
  EXPECT_EQ(HostPool::Create({.bytes = 1, .threads = -1}).status().message(),
            "threads: must be in 0..256");
  EXPECT_EQ(HostPool::Create({.bytes = 1, .numa_node = -1}).status().message(),
            "numa_node: must be in 0..1023");
  EXPECT_EQ(HostPool::Create({.bytes = SIZE_MAX}).status().message(), "bytes: is too large");
}

TEST(HostPool, ATooLargePoolIsExhausted) {
  const auto pool = HostPool::Create({.bytes = size_t{1} << 60});
  EXPECT_EQ(pool.status().code(), StatusCode::kExhausted);
  EXPECT_EQ(pool.status().message(), "mmap of the host pool: Cannot allocate memory");
  const auto no_node = HostPool::Create({.bytes = 1, .numa_node = 1023});
  EXPECT_EQ(no_node.status().code(), StatusCode::kExhausted);
  EXPECT_NE(no_node.status().message().find("NUMA node 1023"), std::string::npos);
}

}  // namespace
}  // namespace kvcast
