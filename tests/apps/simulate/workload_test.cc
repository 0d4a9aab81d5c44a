// LinkTurns finds the continuations of open-loop requests. GenerateShared depends only on the seed.
// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "apps/simulate/workload_sources.h"

namespace kvcast::simulate {
namespace {

// A request with blocks of 10 tokens, and `tail` tokens after them.
WorkloadRequest Request(std::vector<uint64_t> blocks, int64_t tail, int64_t output,
                        int64_t number) {
  WorkloadRequest request;
  request.prompt_tokens = 10 * std::ssize(blocks) + tail;
  request.output_tokens = output;
  request.blocks = std::move(blocks);
  request.session = number;
  return request;
}

Slice Linked(std::vector<WorkloadRequest> requests) {
  Slice slice{.block_tokens = 10, .requests = std::move(requests)};
  LinkTurns(slice);
  return slice;
}

TEST(LinkTurns, PromptThatBeginsWithAnEarlierPromptContinuesIt) {
  const Slice slice = Linked({Request({1, 2}, 3, 5, 0), Request({7, 8}, 0, 1, 1),
                              Request({1, 2, 3}, 0, 5, 2), Request({1, 2, 3, 4}, 5, 5, 3)});
  EXPECT_EQ(slice.requests[0].next, 2);
  EXPECT_EQ(slice.requests[1].next, kNoRequest);
  EXPECT_EQ(slice.requests[2].next, 3);
  EXPECT_EQ(slice.requests[3].next, kNoRequest);
  EXPECT_EQ(slice.requests[2].session, 0);
  EXPECT_EQ(slice.requests[3].session, 0);
  EXPECT_EQ(slice.requests[1].session, 1);
}

TEST(LinkTurns, ContinuationHasRoomForThePromptAndItsAnswer) {
  // The first prompt and its answer have 23 + 8 = 31 tokens.
  EXPECT_EQ(Linked({Request({1, 2}, 3, 8, 0), Request({1, 2, 3}, 0, 1, 1)}).requests[0].next,
            kNoRequest);
  EXPECT_EQ(Linked({Request({1, 2}, 3, 8, 0), Request({1, 2, 3}, 1, 1, 1)}).requests[0].next, 1);
}

TEST(LinkTurns, OneBlockIsNoConversation) {
  EXPECT_EQ(Linked({Request({1}, 0, 1, 0), Request({1, 2}, 0, 1, 1)}).requests[0].next, kNoRequest);
}

TEST(LinkTurns, APromptIsContinuedOnlyByTheFirstPossibleRequest) {
  const Slice slice =
      Linked({Request({1, 2}, 0, 1, 0), Request({1, 2, 3}, 0, 1, 1), Request({1, 2, 4}, 0, 1, 2)});
  EXPECT_EQ(slice.requests[0].next, 1);
  EXPECT_EQ(slice.requests[2].session, 2);
}

TEST(LinkTurns, LongestEarlierPromptIsContinued) {
  const Slice slice = Linked({Request({1, 2}, 0, 100, 0), Request({1, 2}, 0, 1, 1),
                              Request({1, 2, 3}, 0, 1, 2), Request({1, 2, 3, 4}, 0, 1, 3)});
  EXPECT_EQ(slice.requests[0].next, kNoRequest);  // its answer does not fit
  EXPECT_EQ(slice.requests[1].next, 2);
  EXPECT_EQ(slice.requests[2].next, 3);
}

bool Equal(const Workload& a, const Workload& b) {
  const auto equal = [](const WorkloadRequest& x, const WorkloadRequest& y) {
    return x.delay_s == y.delay_s && x.prompt_tokens == y.prompt_tokens &&
           x.output_tokens == y.output_tokens && x.blocks == y.blocks;
  };
  return std::ranges::equal(a.slices, b.slices, [&](const Slice& x, const Slice& y) {
    return std::ranges::equal(x.requests, y.requests, equal);
  });
}

TEST(GenerateShared, IsAFunctionOfTheSeed) {
  const SliceOptions one{.slices = 2, .requests = 50, .seed = 1};
  const SliceOptions other{.slices = 2, .requests = 50, .seed = 2};
  EXPECT_TRUE(Equal(GenerateShared(one), GenerateShared(one)));
  EXPECT_FALSE(Equal(GenerateShared(one), GenerateShared(other)));
}

TEST(GenerateShared, PromptsOfOneSliceShareAndSlicesDoNot) {
  const Workload workload = GenerateShared({.slices = 2, .requests = 100, .seed = 3});
  ASSERT_EQ(workload.slices.size(), 2u);
  std::vector<std::set<uint64_t>> names(2);
  for (size_t s = 0; s < 2; ++s) {
    size_t all = 0;
    double before_s = 0;
    for (const WorkloadRequest& request : workload.slices[s].requests) {
      EXPECT_EQ(std::ssize(request.blocks), request.prompt_tokens / 64);
      EXPECT_GE(request.delay_s, before_s);
      EXPECT_EQ(request.after, kNoRequest);
      before_s = request.delay_s;
      all += request.blocks.size();
      names[s].insert(request.blocks.begin(), request.blocks.end());
    }
    EXPECT_LT(names[s].size(), all);
  }
  for (const uint64_t name : names[0]) EXPECT_FALSE(names[1].contains(name));
}

}  // namespace
}  // namespace kvcast::simulate
