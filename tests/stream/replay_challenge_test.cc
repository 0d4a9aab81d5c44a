// A publisher answers a challenge with one batch. Only clients that know challenges get a status
// with the flag for challenges.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/stream/publish/replay_responder.h"

namespace kvcast::stream {
namespace {

using residency::EncodeRequest;
using residency::Verb;

EventBatch AnswerOf(uint64_t nonce) {
  BlockStored stored;
  stored.block_hashes = {BlockHash::FromUnsigned(nonce)};
  stored.token_ids = std::vector<TokenId>(16, 7);
  stored.block_size = 16;
  EventBatch batch;
  batch.events = {stored};
  return batch;
}

// A batch that no dialect can carry.
EventBatch Unencodable(uint64_t) {
  BlockStored stored;
  stored.block_hashes = {BlockHash::FromUnsigned(1)};
  stored.tokens_per_position = 3;
  EventBatch batch;
  batch.events = {stored};
  return batch;
}

struct ReplayChallenge : ::testing::Test {
  // The answer to a request: the batches, and the status at its end.
  struct Response {
    std::vector<EventBatch> batches;
    std::optional<residency::PublisherStatus> status;
  };
  Response Ask(Verb verb, uint32_t count, uint64_t argument,
               PublisherState::AnswerChallenge answer_challenge = AnswerOf) {
    PublisherState state({1, 2}, ring, kDefaultDialect, /*data_parallel_rank=*/3,
                         std::move(answer_challenge));
    ReplayResponder responder(ring, &state);
    Answer answer = responder.Begin(EncodeRequest({verb, count, argument}), /*arrival=*/0);
    Response response;
    std::vector<RingEntry> replies;
    responder.Read(answer, 100, replies);
    for (const RingEntry& reply : replies) {
      DecodeCounts counts;
      EventBatch& batch = response.batches.emplace_back();
      EXPECT_TRUE(DecodeBatch(*reply.payload, WireLimits(), batch, counts).ok());
      responder.Sent(answer, reply);
    }
    if (const Payload end = responder.EndPayload(answer)) {
      response.status = residency::ParseStatus(*end).value();
    }
    return response;
  }

  ReplayRing ring{1000, SIZE_MAX};
};

TEST_F(ReplayChallenge, IsAnsweredWithOneBatchAndAStatus) {
  const Response response = Ask(Verb::kChallenge, 0, 4711);
  ASSERT_EQ(response.batches.size(), 1u);
  EXPECT_EQ(response.batches[0].events, AnswerOf(4711).events);
  EXPECT_EQ(response.batches[0].data_parallel_rank, 3);
  ASSERT_TRUE(response.status);
  EXPECT_EQ(response.status->epoch, (residency::Epoch{1, 2}));
}

TEST_F(ReplayChallenge, IsAnUnknownRequestForAPublisherThatAnswersNone) {
  const Response response = Ask(Verb::kChallenge, 0, 4711, nullptr);
  EXPECT_TRUE(response.batches.empty());
  EXPECT_FALSE(response.status);
}

TEST_F(ReplayChallenge, AnAnswerThatCannotBeEncodedIsLeftOut) {
  const Response response = Ask(Verb::kChallenge, 0, 4711, Unencodable);
  EXPECT_TRUE(response.batches.empty());
  EXPECT_TRUE(response.status);
}

// The client asks again after a later status.
TEST_F(ReplayChallenge, WithoutAnAnswerThereIsOnlyAStatus) {
  const auto none = [](uint64_t) { return EventBatch(); };
  const Response response = Ask(Verb::kChallenge, 0, 4711, none);
  EXPECT_TRUE(response.batches.empty());
  EXPECT_TRUE(response.status);
  EXPECT_TRUE(Ask(Verb::kStatus, residency::kKnowsChallenges, 0, none).status->answers_challenges);
}

// Older clients reject a status with an unknown flag.
TEST_F(ReplayChallenge, OnlyTheStatusForAClientThatKnowsChallengesHasTheFlag) {
  EXPECT_TRUE(Ask(Verb::kStatus, residency::kKnowsChallenges, 0).status->answers_challenges);
  EXPECT_FALSE(Ask(Verb::kStatus, 0, 0).status->answers_challenges);
  EXPECT_FALSE(Ask(Verb::kStatus, 0, 1).status->answers_challenges);
  EXPECT_FALSE(
      Ask(Verb::kStatus, residency::kKnowsChallenges, 0, nullptr).status->answers_challenges);
  EXPECT_FALSE(Ask(Verb::kReplay, residency::kKnowsChallenges, 0).status->answers_challenges);
  EXPECT_FALSE(Ask(Verb::kSnapshot, 0, ~uint64_t{0}).status->answers_challenges);
  EXPECT_FALSE(Ask(Verb::kChallenge, 0, 1).status->answers_challenges);
}

}  // namespace
}  // namespace kvcast::stream
