// A hash names one content, and a content has one hash per block size. A query by content does not
// find blocks that break this rule.
// SPDX-License-Identifier: Apache-2.0
#include "router/names/ambiguous_names.h"
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

TEST(ContentNamingTrust, AHashThatNamesTwoContentsIsNotPromised) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  EXPECT_FALSE(worker.Match(Tokens(1, 8)).ambiguous);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(90, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_EQ(worker.Reusable(Tokens(90, 4)), 0);
  EXPECT_TRUE(worker.Match(Tokens(1, 8)).ambiguous);
  EXPECT_TRUE(worker.Match(Tokens(90, 4)).ambiguous);
  EXPECT_EQ(worker.counters().ambiguous, 2u) << "both contents";
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kAmbiguous), 1u);
  EXPECT_EQ(worker.counters().residencies, 2u) << "a query by hash still finds the block";
}

TEST(ContentNamingTrust, AnAmbiguousHashStaysAmbiguous) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(1)}, Tokens(90, 4)));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_FALSE(worker.Knows(Hash(1)));
  EXPECT_FALSE(worker.Knows(Hash(2)));
  worker.Apply(Remove({Hash(1), Hash(1), Hash(1)}));
  EXPECT_EQ(worker.counters().unknown_removes, 0u) << "its copies are counted";
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(ContentNamingTrust, AnAmbiguousHashIsFoundByHash) {
  ContentWorker worker({Full(4)});
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(1)}, Tokens(90, 4)));
  const auto by_hash = worker.index().Match(Hashes(1, 1), 4, 5);
  EXPECT_EQ(by_hash.at(0).gpu_tokens, 4);
  EXPECT_FALSE(by_hash.at(0).ambiguous);
}

TEST(ContentNamingTrust, AHashThatOccursTwiceInAStoreIsAmbiguous) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1), Hash(1)}, Tokens(1, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

// An old engine does not send salts. Blocks of two tenants then have the same content and different
// hashes.
TEST(ContentNamingTrust, AContentOfTwoHashesIsNotPromised) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)));
  worker.Apply(StoreTokens({Hash(11)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_TRUE(worker.Match(Tokens(1, 8)).ambiguous);
  worker.Apply(StoreTokens({Hash(21), Hash(22)}, Tokens(1, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0) << "a third hash";
  worker.Apply(Remove({Hash(11), Hash(21), Hash(22)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0) << "the contradiction stays known";
}

// The worker holds the two hashes one after the other.
TEST(ContentNamingTrust, AContentMayGetAnotherHashAfterItsBlockIsRemoved) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), Remove({Hash(1)}));
  worker.Apply(StoreTokens({Hash(11)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  EXPECT_FALSE(worker.Match(Tokens(1, 4)).ambiguous);
}

// The content of a block becomes known, but the worker already has another hash for that content.
TEST(ContentNamingTrust, AnUnnamedBlockWhoseContentIsTakenStaysUnnamed) {
  ContentWorker worker({Full(4)});
  worker.Apply(StoreTokens({Hash(5)}, Tokens(5, 4), Hash(4)), StoreTokens({Hash(1)}, Tokens(1, 4)));
  worker.Apply(StoreTokens({Hash(5)}, Tokens(1, 4)));
  EXPECT_FALSE(worker.Knows(Hash(5)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  EXPECT_TRUE(worker.Match(Tokens(1, 4)).ambiguous);
  EXPECT_EQ(worker.counters().named_late, 0u);
  worker.Apply(Remove({Hash(5), Hash(5)}));
  EXPECT_EQ(worker.counters().unknown_removes, 0u);
}

TEST(ContentNamingTrust, OtherBlocksAreNotAffected) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(5), Hash(6)}, Tokens(50, 8)));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(11)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(50, 8)), 8);
  EXPECT_FALSE(worker.Match(Tokens(50, 8)).ambiguous);
}

TEST(ContentNamingTrust, EventsOfOneWorkerDoNotAffectAnotherWorker) {
  ContentWorker worker;
  PrefixIndex& index = worker.index();
  constexpr WorkerId kOther{8};
  ASSERT_TRUE(index.AddWorker(kOther, Registered({Full(4)}, 4)).ok());
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)));
  // The worker kOther sends another content for hash 1, and another hash for the content of hash 1.
  index.Apply(kOther, Batch(StoreTokens({Hash(1)}, Tokens(90, 4))));
  index.Apply(kOther, Batch(StoreTokens({Hash(7)}, Tokens(1, 4))));
  index.Apply(kOther, Batch(StoreTokens({Hash(7)}, Tokens(60, 4))));
  const std::vector<TokenId> prompt = Tokens(1, 9);
  const auto contents = PromptContents(index.keys(), prompt, 4, 0, {});
  const auto matches =
      index.Match({.hash_block_size = 4, .prompt_tokens = 9, .contents = contents, .hashes = {}});
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].gpu_tokens, 8);
  EXPECT_FALSE(matches[0].ambiguous);
  EXPECT_EQ(matches[1].gpu_tokens, 0);
  EXPECT_TRUE(matches[1].ambiguous);
}

// A hostile worker with blocks of two sizes, and a correct worker that uses the same hashes.
class HostileAndCorrect {
 public:
  explicit HostileAndCorrect(int64_t hostile_block = 4, int64_t block = 4) : block_(block) {
    const std::vector<GroupSpec> groups = {Full(hostile_block), Full(2 * hostile_block)};
    EXPECT_TRUE(index_.AddWorker(kWorker, Registered(groups, hostile_block)).ok());
    EXPECT_TRUE(index_.AddWorker(kCorrect, Registered({Full(block)}, block)).ok());
  }
  void SendHostile(Event event) { index_.Apply(kWorker, Batch(std::move(event))); }
  void SendCorrect(Event event) { index_.Apply(kCorrect, Batch(std::move(event))); }
  // Returns the leading tokens of these tokens that the correct worker can reuse.
  int64_t Reusable(std::vector<TokenId> tokens) const {
    tokens.push_back(-1);
    const auto contents = PromptContents(index_.keys(), tokens, block_, 0, {});
    const std::vector<WorkerId> ids = {kCorrect};
    const auto matches = index_.Match({.hash_block_size = block_,
                                       .prompt_tokens = std::ssize(tokens),
                                       .contents = contents,
                                       .hashes = {}},
                                      ids);
    EXPECT_EQ(matches.size(), 1u);
    if (matches.empty()) return -1;
    EXPECT_TRUE(matches[0].certain);
    EXPECT_EQ(matches[0].unknown, 0u);
    return matches[0].gpu_tokens;
  }

 private:
  static constexpr WorkerId kCorrect{8};

  const int64_t block_;
  PrefixIndex index_;
};

// Hides the content of the only block of a store.
BlockStored Hidden(BlockStored event) {
  return WithExtraKeys(std::move(event), {ExtraKeys{ExtraKey{}}});
}

TEST(ContentNamingTrust, ARememberedNameBehindAnotherBlockHidesNoBlockOfAnotherWorker) {
  HostileAndCorrect workers;
  workers.SendHostile(StoreTokens({Hash(1)}, Tokens(1, 4)));
  workers.SendHostile(Remove({Hash(1)}));
  workers.SendHostile(WithExtraKeys(StoreTokens({Hash(50), Hash(1)}, Tokens(50, 8)),
                                    {std::nullopt, ExtraKeys{ExtraKey::Text("x")}}));
  workers.SendCorrect(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(workers.Reusable(Tokens(1, 4)), 4);
}

TEST(ContentNamingTrust, ASmallerBlockSizeHidesNoBlockOfAnotherWorker) {
  HostileAndCorrect workers(16, 32);
  workers.SendHostile(StoreTokens({Hash(50), Hash(1)}, Tokens(1, 32), std::nullopt, 0, 16));
  workers.SendCorrect(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 64), std::nullopt, 0, 32));
  EXPECT_EQ(workers.Reusable(Tokens(1, 64)), 64);
}

TEST(ContentNamingTrust, AnAmbiguousBlockOfAWaitingStoreHidesNoBlockOfAnotherWorker) {
  HostileAndCorrect workers;
  workers.SendHostile(StoreTokens({Hash(3)}, Tokens(50, 4)));
  workers.SendHostile(StoreTokens({Hash(3)}, Tokens(60, 4)));
  workers.SendHostile(StoreTokens({Hash(2), Hash(3), Hash(4)}, Tokens(5, 12), Hash(1)));
  workers.SendHostile(StoreTokens({Hash(1)}, Tokens(1, 4)));
  workers.SendCorrect(StoreTokens(Hashes(1, 4), Tokens(1, 16)));
  EXPECT_EQ(workers.Reusable(Tokens(1, 16)), 16);
}

// The index computes the content of the unknown parent back from block 1, as if block 1 ended with
// the tokens of the store.
TEST(ContentNamingTrust, AFalseParentHidesNoBlockOfAnotherWorker) {
  HostileAndCorrect workers;
  workers.SendHostile(StoreTokens({Hash(1)}, Tokens(1, 4)));
  workers.SendHostile(Remove({Hash(1)}));
  workers.SendHostile(StoreTokens({Hash(50), Hash(1)}, Tokens(50, 8), Hash(77)));
  workers.SendCorrect(StoreTokens({Hash(1)}, Tokens(1, 4)));
  workers.SendCorrect(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(workers.Reusable(Tokens(1, 8)), 8);
}

TEST(ContentNamingTrust, AChildOfAFalseParentHidesNoBlockOfAnotherWorker) {
  HostileAndCorrect workers;
  workers.SendHostile(StoreTokens({Hash(1)}, Tokens(1, 4)));
  workers.SendHostile(
      StoreTokens({Hash(50), Hash(1)}, Tokens(50, 8), Hash(77)));  // names the hash 77
  workers.SendHostile(Remove({Hash(50), Hash(1), Hash(1)}));
  workers.SendHostile(Hidden(StoreTokens({Hash(77)}, Tokens(90, 4))));
  workers.SendHostile(StoreTokens({Hash(50), Hash(1)}, Tokens(50, 8), Hash(77)));
  workers.SendCorrect(StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(workers.Reusable(Tokens(1, 4)), 4);
}

TEST(ContentNamingTrust, AStoreThatWaitsForAFalseParentHidesNoBlockOfAnotherWorker) {
  HostileAndCorrect workers;
  workers.SendHostile(StoreTokens({Hash(50), Hash(1)}, Tokens(50, 8), Hash(77)));
  workers.SendHostile(Hidden(StoreTokens({Hash(77)}, Tokens(90, 4))));
  workers.SendHostile(StoreTokens({Hash(8), Hash(9)}, Tokens(1, 8)));
  workers.SendHostile(StoreTokens({Hash(9)}, Tokens(50, 8), Hash(77), 1, 8));  // names the hash 77
  workers.SendCorrect(StoreTokens({Hash(8), Hash(1)}, Tokens(1, 8)));
  EXPECT_EQ(workers.Reusable(Tokens(1, 8)), 8);
}

// Engines before 2026-06 give a prefix a different hash for each block size.
TEST(ContentNamingTrust, AnotherHashForAnotherBlockSizeIsNoContradiction) {
  ContentWorker worker({Full(8), Full(4)});
  worker.Apply(StoreTokens({Hash(21)}, Tokens(1, 8), std::nullopt, 0, 8));
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8), std::nullopt, 1, 4));
  EXPECT_EQ(worker.counters().ambiguous, 0u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  EXPECT_FALSE(worker.Match(Tokens(1, 8)).ambiguous);
}

// Each round adds three ambiguous names: a hash and its two contents. From kMax ambiguous names on,
// the index trusts no name of the worker.
TEST(ContentNamingTrust, TooManyContradictionsEndAllTrust) {
  ContentWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  for (uint64_t i = 0; i < router::AmbiguousNames::kMax; ++i) {
    EXPECT_EQ(worker.Reusable(Tokens(1, 4)), router::AmbiguousNames::kMax > 3 * i ? 4 : 0) << i;
    const auto first = static_cast<TokenId>(1000 + 8 * i);
    worker.Apply(StoreTokens({Hash(100 + i)}, Tokens(first, 4)),
                 StoreTokens({Hash(100 + i)}, Tokens(first + 4, 4)));
  }
  EXPECT_TRUE(worker.Match(Tokens(1, 4)).ambiguous);
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_FALSE(worker.Knows(Hash(2)));
}

// A source may hold blocks in 64 groups on 3 tiers.
TEST(ContentNamingTrust, AContradictionInOneOfManyGroupsIsSeen) {
  ContentWorker worker;
  for (int64_t group = 0; group < 20; ++group) {
    worker.Apply(StoreTokens({Hash(100)}, Tokens(50, 4), std::nullopt, group));
  }
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 7));
  EXPECT_EQ(worker.counters().ambiguous, 0u);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(90, 4), std::nullopt, 12));
  EXPECT_EQ(worker.counters().ambiguous, 2u);
  worker.Apply(StoreTokens({Hash(2)}, Tokens(50, 4), std::nullopt, 3));
  EXPECT_EQ(worker.counters().ambiguous, 3u);
}

// After a clear, the same hash may have another content, even in the same batch.
TEST(ContentNamingTrust, AClearEndsTheNamesOfManyGroups) {
  ContentWorker worker;
  for (int64_t group = 0; group < 20; ++group) {
    worker.Apply(StoreTokens({Hash(100)}, Tokens(50, 4), std::nullopt, group));
  }
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), AllBlocksCleared{},
               StoreTokens({Hash(1)}, Tokens(90, 4)), StoreTokens({Hash(2)}, Tokens(1, 4)));
  EXPECT_EQ(worker.counters().ambiguous, 0u);
  EXPECT_TRUE(worker.Knows(Hash(1)));
  EXPECT_TRUE(worker.Knows(Hash(2)));
  EXPECT_NE(worker.ContentOf(Hash(1)), worker.ContentOf(Hash(2)));
}

}  // namespace
}  // namespace kvcast::testing
