// The host copy backend copies batches of rows and reports their ends.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/transfer/host_copy_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/pools.h"
#include "tests/transfer/thread_limit.h"

namespace kvcast {
namespace {

using testing::FillWith;

std::unique_ptr<CopyBackend> Backend(int threads = 2, bool streaming = true) {
  auto backend = MakeHostCopyBackend({.threads = threads, .streaming = streaming});
  EXPECT_TRUE(backend.ok());
  return std::move(backend).value();
}

TEST(HostCopyBackend, OneLongRowIsCopiedWhole) {
  std::vector<std::byte> source(5'000'011);
  std::vector<std::byte> target(source.size());
  FillWith(source, 1);
  const auto backend = Backend(3);
  const CopyOp op{source.data(), target.data(), source.size(), 0, 0, 1};
  const auto ticket = backend->Submit(CopyDirection::kLoad, {&op, 1}, nullptr);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(backend->Wait(*ticket), CopyState::kDone);
  EXPECT_EQ(target, source);
}

TEST(HostCopyBackend, RowsLandAtTheirPitches) {
  for (const size_t row_bytes : {100u, 5'000u, 100'000u, 700'000u}) {
    constexpr uint32_t kRows = 7;
    std::vector<std::byte> source(kRows * (row_bytes + 3));
    std::vector<std::byte> target(kRows * (row_bytes + 9));
    FillWith(source, 1);
    FillWith(target, 2);
    auto want = target;
    for (size_t row = 0; row < kRows; ++row) {
      std::copy_n(&source[row * (row_bytes + 3)], row_bytes, &want[row * (row_bytes + 9)]);
    }
    const auto backend = Backend();
    const CopyOp op{source.data(), target.data(), row_bytes, row_bytes + 3, row_bytes + 9, kRows};
    const auto ticket = backend->Submit(CopyDirection::kStore, {&op, 1}, nullptr);
    ASSERT_TRUE(ticket.ok());
    EXPECT_EQ(backend->Wait(*ticket), CopyState::kDone);
    EXPECT_TRUE(target == want) << row_bytes;
  }
}

TEST(HostCopyBackend, ManyBatchesOfManyFragmentsAtOnce) {
  constexpr size_t kFragment = 4096;
  constexpr size_t kFragments = 3000;
  std::vector<std::byte> source(kFragment * kFragments);
  std::vector<std::byte> target(source.size());
  FillWith(source, 1);
  std::vector<size_t> order(kFragments);
  for (size_t i = 0; i < kFragments; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  for (const bool streaming : {true, false}) {
    std::fill(target.begin(), target.end(), std::byte{0});
    const auto backend = Backend(4, streaming);
    std::vector<CopyTicket> tickets;
    for (size_t begin = 0; begin < kFragments; begin += 300) {
      std::vector<CopyOp> ops;
      for (size_t i = begin; i < begin + 300; ++i) {
        const size_t offset = order[i] * kFragment;
        ops.push_back({source.data() + offset, target.data() + offset, kFragment, 0, 0, 1});
      }
      const auto direction = begin % 600 == 0 ? CopyDirection::kLoad : CopyDirection::kStore;
      tickets.push_back(*backend->Submit(direction, ops, nullptr));
    }
    for (size_t i = tickets.size(); i-- > 0;) {
      EXPECT_EQ(backend->Wait(tickets[i]), CopyState::kDone);
    }
    EXPECT_TRUE(target == source);
  }
}

TEST(HostCopyBackend, PollReportsTheEndOfABatch) {
  std::vector<std::byte> source(1 << 20);
  std::vector<std::byte> target(source.size());
  FillWith(source, 4);
  const auto backend = Backend(1);
  const CopyOp op{source.data(), target.data(), source.size(), 0, 0, 1};
  const auto ticket = backend->Submit(CopyDirection::kLoad, {&op, 1}, nullptr);
  CopyState state = CopyState::kRunning;
  while (state == CopyState::kRunning) state = backend->Poll(*ticket);
  EXPECT_EQ(state, CopyState::kDone);
  EXPECT_TRUE(target == source);
}

TEST(HostCopyBackend, AnEmptyBatchIsDone) {
  const auto backend = Backend();
  const auto ticket = backend->Submit(CopyDirection::kLoad, {}, nullptr);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(backend->Poll(*ticket), CopyState::kDone);
}

TEST(HostCopyBackend, CopiesWithTheThreadsThatCanStart) {
  std::vector<std::byte> source(3'000'000);
  std::vector<std::byte> target(source.size());
  FillWith(source, 6);
  std::unique_ptr<CopyBackend> backend;
  {
    const testing::ThreadLimit limit(1);
    backend = Backend(3);
  }
  const CopyOp op{source.data(), target.data(), source.size(), 0, 0, 1};
  const auto ticket = backend->Submit(CopyDirection::kLoad, {&op, 1}, nullptr);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(backend->Wait(*ticket), CopyState::kDone);
  EXPECT_TRUE(target == source);
}

TEST(HostCopyBackend, IsExhaustedIfNoThreadCanStart) {
  const testing::ThreadLimit limit(0);
  EXPECT_EQ(MakeHostCopyBackend({.threads = 3}).status().ToString(),
            "exhausted: no copy thread can start");
}

TEST(HostCopyBackend, ErrorsNameTheField) {
  EXPECT_EQ(MakeHostCopyBackend({.threads = -1}).status().message(), "threads: must be in 0..256");
  EXPECT_EQ(MakeHostCopyBackend({.threads = 257}).status().message(), "threads: must be in 0..256");
  int event = 0;
  EXPECT_EQ(Backend()->Submit(CopyDirection::kLoad, {}, &event).status().message(),
            "after: the host backend has no events");
}

}  // namespace
}  // namespace kvcast
