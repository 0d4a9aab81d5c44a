// Different contents have different keys. All code paths compute the same key for one content.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/content_key.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "router/names/prime_field.h"

namespace kvcast {
namespace {

constexpr uint64_t kSecret = 0x1234;

std::vector<TokenId> RandomTokens(std::mt19937_64& random, size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % 150000);
    // Ids that do not fit the 28 bits of a vector lane, ids that do not fit 32 bits, and negative
    // ids.
    switch (random() % 64) {
      case 0:
        token = static_cast<TokenId>(random());
        break;
      case 1:
        token += TokenId{1} << 29;
        break;
      case 2:
        token = -token;
        break;
      default:
        break;
    }
  }
  return tokens;
}

ContentKey TokenByToken(const ContentKeys& keys, ContentKey key, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) key = keys.Extend(key, token);
  return key;
}

TEST(PrimeField, AgreesWithLongDivision) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t edge[] = {0, 1, router::kFieldPrime - 1, ~uint64_t{0}, random()};
    const uint64_t a = edge[random() % 5];
    const uint64_t b = edge[random() % 5];
    const auto product = static_cast<router::Wide>(a) * b;
    ASSERT_EQ(router::Canonical(router::Fold(product)),
              static_cast<uint64_t>(product % router::kFieldPrime));
  }
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = 1 + random() % (router::kFieldPrime - 1);
    ASSERT_EQ(router::MultiplyMod(value, router::InverseMod(value)), 1u);
  }
}

TEST(ContentKeys, AllWaysToComputeAKeyAgree) {
  const ContentKeys keys(kSecret);
  std::mt19937_64 random(2);
  for (const size_t step : {1, 2, 3, 8, 12, 15, 16, 17, 32, 48, 64, 528}) {
    const std::vector<TokenId> tokens = RandomTokens(random, 5 * 528 + 7);
    const ContentKey root = keys.Root({"adapter", "salt"});
    std::vector<ContentKey> fast(tokens.size() / step);
    std::vector<ContentKey> portable(fast.size());
    keys.ExtendBy(root, tokens, step, fast);
    keys.ExtendByPortably(root, tokens, step, portable);
    ASSERT_EQ(fast, portable) << "step " << step;
    for (size_t i = 0; i < fast.size(); ++i) {
      ASSERT_EQ(fast[i], TokenByToken(keys, root, std::span(tokens).first((i + 1) * step)));
    }
    ASSERT_EQ(keys.Extend(root, std::span(tokens).first(fast.size() * step)), fast.back());
  }
}

TEST(ContentKeys, TheKeyOfAPrefixIsSufficientForItsExtensions) {
  const ContentKeys keys(kSecret);
  std::mt19937_64 random(3);
  const std::vector<TokenId> tokens = RandomTokens(random, 1000);
  const ContentKey whole = keys.Extend(keys.Root({}), tokens);
  for (size_t cut = 0; cut <= tokens.size(); cut += 37) {
    const ContentKey begin = keys.Extend(keys.Root({}), std::span(tokens).first(cut));
    EXPECT_EQ(keys.Extend(begin, std::span(tokens).subspan(cut)), whole);
    EXPECT_EQ(keys.Retract(whole, std::span(tokens).subspan(cut)), begin);
  }
}

TEST(ContentKeys, WideTokensDifferFromPairsOfNarrowTokens) {
  const ContentKeys keys(kSecret);
  const ContentKey root = keys.Root({});
  std::set<ContentKey> seen;
  const std::vector<std::vector<TokenId>> prefixes = {{},
                                                      {0},
                                                      {0, 0},
                                                      {0, 0, 0},
                                                      {1},
                                                      {1, 0},
                                                      {0, 1},
                                                      {-1},
                                                      {-59},
                                                      {58},
                                                      {TokenId{1} << 32},
                                                      {TokenId{1} << 32 | 1},
                                                      {(TokenId{1} << 32) - 1},
                                                      {-1, 0},
                                                      {INT64_MIN},
                                                      {INT64_MAX},
                                                      {4294967295, 4294967295}};
  for (const auto& prefix : prefixes) {
    EXPECT_TRUE(seen.insert(keys.Extend(root, prefix)).second) << prefix.size();
  }
}

TEST(ContentKeys, ScopesItemsAndMarksHaveDifferentKeys) {
  const ContentKeys keys(kSecret);
  std::set<ContentKey> seen;
  for (const char* lora : {"", "a", "b", "ab"}) {
    for (const char* salt : {"", "a", "b", "ab"}) {
      EXPECT_TRUE(seen.insert(keys.Root({lora, salt})).second) << lora << "/" << salt;
    }
  }
  const ContentKey root = keys.Root({});
  const uint8_t digest[] = {'a'};
  EXPECT_TRUE(seen.insert(keys.AddItem(root, "a")).second);
  EXPECT_TRUE(seen.insert(keys.AddItem(keys.AddItem(root, "a"), "a")).second);
  EXPECT_TRUE(seen.insert(keys.AddEmbeddings(root, digest)).second);
  EXPECT_TRUE(seen.insert(keys.Extend(keys.AddItem(root, "a"), TokenId{7})).second);
  EXPECT_TRUE(seen.insert(keys.AddItem(keys.Extend(root, TokenId{7}), "a")).second);
  for (int64_t lookahead = 1; lookahead <= kMaxLookahead; ++lookahead) {
    const ContentKey marked = keys.Mark(root, lookahead);
    EXPECT_TRUE(seen.insert(marked).second);
    EXPECT_EQ(keys.Unmark(marked, lookahead), root);
  }
  EXPECT_EQ(keys.Mark(root, 0), root);
}

TEST(ContentKeys, KeysDependOnTheSecret) {
  const ContentKeys keys(kSecret);
  const ContentKeys same(kSecret);
  const ContentKeys other(kSecret + 1);
  std::mt19937_64 random(4);
  const std::vector<TokenId> tokens = RandomTokens(random, 64);
  EXPECT_EQ(keys.Extend(keys.Root({}), tokens), same.Extend(same.Root({}), tokens));
  // The keys of two secrets are unrelated: the difference between the two keys of a prefix is
  // different for each prefix.
  std::set<ContentKey> differences;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const auto first = std::span(tokens).first(i);
    differences.insert(keys.Extend(keys.Root({}), first) - other.Extend(other.Root({}), first));
  }
  EXPECT_EQ(differences.size(), tokens.size() - 1);
}

// Makes one change to each of many prefixes, and checks that the key changes. The changes are:
// another token, two tokens in exchanged order, one token less, another salt, another LoRA name,
// and one more item.
TEST(ContentKeys, NeighboursNeverShareAKey) {
  const ContentKeys keys(kSecret);
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::vector<TokenId> tokens = RandomTokens(random, 2 + random() % 60);
    const ContentScope scope = {random() % 2 == 0 ? "lora" : "", random() % 2 == 0 ? "salt" : ""};
    const ContentKey key = keys.Extend(keys.Root(scope), tokens);
    const size_t position = random() % (tokens.size() - 1);
    std::vector<TokenId> changed = tokens;
    changed[position] ^= TokenId{1} << (random() % 63);
    ASSERT_NE(keys.Extend(keys.Root(scope), changed), key);
    changed = tokens;
    std::swap(changed[position], changed[position + 1]);
    ASSERT_TRUE(changed == tokens || keys.Extend(keys.Root(scope), changed) != key);
    ASSERT_NE(keys.Extend(keys.Root(scope), std::span(tokens).first(tokens.size() - 1)), key);
    ASSERT_NE(keys.Extend(keys.Root({scope.lora_name, "tlas"}), tokens), key);
    ASSERT_NE(keys.Extend(keys.Root({"arol", scope.cache_salt}), tokens), key);
    const ContentKey item =
        keys.AddItem(keys.Extend(keys.Root(scope), {tokens.data(), position}), "i");
    ASSERT_NE(keys.Extend(item, std::span(tokens).subspan(position)), key);
  }
}

}  // namespace
}  // namespace kvcast
