// The reclaim domain frees every retired object that no reader can see, and no other object.
// SPDX-License-Identifier: Apache-2.0
#include "src/base/reclaim_domain.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
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

TEST(ReclaimDomainTest, FreesAtOnceWithoutReaders) {
  int freed = 0;
  ReclaimDomain domain;  // after `freed`, because the destructor frees objects too
  RetireNew(domain, freed);
  EXPECT_EQ(freed, 0);
  domain.Collect();
  EXPECT_EQ(freed, 1);
}

TEST(ReclaimDomainTest, WaitsForTheReadersOfThatTimeOnly) {
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

TEST(ReclaimDomainTest, TheRestGoesWithTheDomain) {
  int freed = 0;
  {
    ReclaimDomain domain;
    RetireNew(domain, freed);
  }
  EXPECT_EQ(freed, 1);
}

// A sanitizer detects a read of a freed object. Without a sanitizer, the test detects a read of the
// value 0, which the writer sets before it frees an object.
TEST(ReclaimDomainTest, ReadersBesideAWriterSeeOnlyLiveObjects) {
  constexpr uint64_t kAlive = 0x600DF00D;
  ReclaimDomain domain;
  std::atomic<uint64_t*> current(new uint64_t(kAlive));
  std::atomic<bool> done{false};
  std::atomic<int> dead{0};
  std::vector<std::jthread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        const ReclaimDomain::Pin pin(domain);
        dead += *current.load(std::memory_order_acquire) != kAlive;
      }
    });
  }
  for (int i = 0; i < 20000; ++i) {
    uint64_t* const old = current.exchange(new uint64_t(kAlive), std::memory_order_acq_rel);
    domain.Retire(
        [](void*, uintptr_t object) {
          auto* number = reinterpret_cast<uint64_t*>(object);
          *number = 0;
          delete number;
        },
        nullptr, reinterpret_cast<uintptr_t>(old));
  }
  done = true;
  readers.clear();
  EXPECT_EQ(dead, 0);
  delete current.load();
}

TEST(ReclaimDomainTest, MoreReadersThanSlotsTakeTurns) {
  ReclaimDomain domain;
  std::atomic<int> entered{0};
  std::vector<std::jthread> readers;
  for (int i = 0; i < 200; ++i) {
    readers.emplace_back([&] {
      const ReclaimDomain::Pin pin(domain);
      ++entered;
    });
  }
  readers.clear();
  EXPECT_EQ(entered, 200);
}

}  // namespace
}  // namespace kvcast
