// The reclaim domain frees every retired object that no reader can see, and no other object.
// SPDX-License-Identifier: Apache-2.0
#include "src/base/reclaim_domain.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <thread>
#include <vector>

namespace kvcast {
namespace {

struct Counted {
  int* freed;
};

void FreeCounted(void* /*context*/, uintptr_t object) {
  const std::unique_ptr<Counted> counted(reinterpret_cast<Counted*>(object));
  ++*counted->freed;
}

void RetireNew(ReclaimDomain& domain, int& freed) {
  domain.Retire(FreeCounted, nullptr, reinterpret_cast<uintptr_t>(new Counted{&freed}));
}

TEST(ReclaimDomainTest, WithoutReadersCollectFreesTheObject) {
  int freed = 0;
  ReclaimDomain domain;  // after `freed`, because the destructor frees objects too
  RetireNew(domain, freed);
  EXPECT_EQ(freed, 0);
  domain.Collect();
  EXPECT_EQ(freed, 1);
}

TEST(ReclaimDomainTest, WaitsOnlyForReadersThatBeganBeforeTheRetire) {
  int freed = 0;
  ReclaimDomain domain;
  std::optional<ReclaimDomain::Pin> early(std::in_place, domain);
  RetireNew(domain, freed);
  domain.Collect();
  EXPECT_EQ(freed, 0);
  const ReclaimDomain::Pin late(domain);
  early.reset();
  domain.Collect();
  EXPECT_EQ(freed, 1);
  RetireNew(domain, freed);
  domain.Collect();
  EXPECT_EQ(freed, 1) << "the late reader was there before this object was retired";
}

TEST(ReclaimDomainTest, RetireCollectsByItself) {
  int freed = 0;
  ReclaimDomain domain;
  for (int i = 0; i < 1000; ++i) RetireNew(domain, freed);
  EXPECT_GT(freed, 800);
}

TEST(ReclaimDomainTest, TheDestructorFreesTheRemainingObjects) {
  int freed = 0;
  {
    ReclaimDomain domain;
    RetireNew(domain, freed);
  }
  EXPECT_EQ(freed, 1);
}

// Calls `condition` until it is true. Returns false after a minute.
bool Soon(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// An object that is freed becomes kDead and stays in memory, so each read of it is detected.
TEST(ReclaimDomainTest, ReadersBesideAWriterSeeOnlyLiveObjects) {
  constexpr uint64_t kAlive = 0x600DF00D;
  constexpr uint64_t kDead = 0;
  constexpr size_t kReaders = 3;
  constexpr int kReads = 20;  // minimum for each reader
  // The number of objects that are retired during one read. Retire collects several times during
  // this read.
  constexpr uint64_t kRetiredDuringRead = 300;
  using Objects = std::deque<std::atomic<uint64_t>>;
  Objects objects;
  ReclaimDomain domain;
  std::atomic<std::atomic<uint64_t>*> current(&objects.emplace_back(kAlive));
  std::atomic<uint64_t> retired{0};
  std::atomic<size_t> unfinished{kReaders};
  std::atomic<bool> done{false};
  std::atomic<int> dead{0};
  std::vector<std::jthread> readers;
  for (size_t i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      for (int reads = 1; !done; ++reads) {
        const ReclaimDomain::Pin pin(domain);
        const std::atomic<uint64_t>* const object = current.load(std::memory_order_acquire);
        const uint64_t end = retired + kRetiredDuringRead;
        while (!done && retired < end) std::this_thread::yield();
        dead += *object != kAlive;
        if (reads == kReads) --unfinished;
      }
    });
  }
  EXPECT_TRUE(Soon([&] {
    for (uint64_t i = 0; i < kRetiredDuringRead; ++i) {
      auto* const old = current.exchange(&objects.emplace_back(kAlive), std::memory_order_acq_rel);
      domain.Retire(
          [](void*, uintptr_t object) {
            *reinterpret_cast<std::atomic<uint64_t>*>(object) = kDead;
          },
          nullptr, reinterpret_cast<uintptr_t>(old));
      ++retired;
    }
    return unfinished == 0 || dead > 0;
  }));
  done = true;
  readers.clear();
  EXPECT_EQ(dead, 0);
}

// The CPU time of a thread in nanoseconds.
int64_t CpuTimeNs(pthread_t thread) {
  clockid_t clock;
  timespec time{};
  EXPECT_EQ(pthread_getcpuclockid(thread, &clock), 0);
  EXPECT_EQ(clock_gettime(clock, &time), 0);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

TEST(ReclaimDomainTest, MoreReadersThanSlotsTakeTurns) {
  constexpr int kSlots = 128;
  constexpr int kMore = 3;
  constexpr int64_t kManyTriesNs = 2'000'000;
  ReclaimDomain domain;
  std::atomic<int> entered{0};
  std::counting_semaphore<> may_leave{0};
  std::vector<std::jthread> readers;
  const auto start_readers = [&](int count) {
    for (; count > 0; --count) {
      readers.emplace_back([&] {
        const ReclaimDomain::Pin pin(domain);
        ++entered;
        may_leave.acquire();
      });
    }
  };
  start_readers(kSlots);
  EXPECT_TRUE(Soon([&] { return entered == kSlots; }));
  start_readers(kMore);
  for (auto reader = readers.end() - kMore; reader != readers.end(); ++reader) {
    EXPECT_TRUE(Soon(
        [&] { return entered > kSlots || CpuTimeNs(reader->native_handle()) > kManyTriesNs; }));
  }
  EXPECT_EQ(entered, kSlots);
  for (int left = 1; left <= kMore; ++left) {
    may_leave.release();
    EXPECT_TRUE(Soon([&] { return entered == kSlots + left; }));
  }
  may_leave.release(kSlots);
}

}  // namespace
}  // namespace kvcast
