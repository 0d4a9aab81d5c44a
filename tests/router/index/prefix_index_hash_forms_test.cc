// The form is part of a hash: unsigned, negative and byte hashes never equal each other.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

BlockHash FromText(const std::string& text) {
  return BlockHash::FromBytes({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

TEST(PrefixIndexHashForms, ANegativeIntegerIsNotItsUnsignedTwin) {
  OneWorker worker(Registered({Full()}));
  const BlockHash negative = BlockHash::FromSigned(-5);
  const BlockHash twin = BlockHash::FromUnsigned(static_cast<uint64_t>(int64_t{-5}));
  worker.Apply(Batch(Store({negative})));
  EXPECT_EQ(worker.Match({negative}, 17), 16);
  EXPECT_EQ(worker.Match({twin}, 17), 0);
  worker.Apply(Batch(Remove({twin})));
  EXPECT_EQ(worker.Match({negative}, 17), 16);
}

TEST(PrefixIndexHashForms, ByteHashesAreComparedInFull) {
  OneWorker worker(Registered({Full()}));
  std::string digest(32, 'a');
  std::string other = digest;
  other[0] = 'b';
  worker.Apply(Batch(Store({FromText(digest)})));
  EXPECT_EQ(worker.Match({FromText(digest)}, 17), 16);
  EXPECT_EQ(worker.Match({FromText(other)}, 17), 0);
  EXPECT_EQ(worker.Match({FromText(digest.substr(0, 31))}, 17), 0);
}

TEST(PrefixIndexHashForms, EightBytesAreNotTheInteger) {
  OneWorker worker(Registered({Full()}));
  const uint64_t value = 0x0102030405060708;
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  worker.Apply(Batch(Store({FromText(bytes)})));
  EXPECT_EQ(worker.Match({BlockHash::FromUnsigned(value)}, 17), 0);
  EXPECT_EQ(worker.Match({FromText(bytes)}, 17), 16);
}

TEST(PrefixIndexHashForms, IntegersAreComparedUpToTheFirstDifference) {
  OneWorker worker(Registered({Full()}));
  constexpr int64_t kChainLength = 150;  // three runs
  worker.Apply(Batch(Store(Hashes(1, kChainLength))));
  std::vector<uint64_t> chain;
  for (const BlockHash& hash : Hashes(1, kChainLength)) chain.push_back(hash.integer());
  PromptBlocks prompt = {.hash_block_size = 16, .prompt_tokens = kChainLength * 16 + 1};
  prompt.integer_hashes = chain;
  EXPECT_EQ(worker.index.Match(prompt)[0].gpu_tokens, kChainLength * 16);
  for (int64_t i = 1; i < kChainLength; ++i) {
    uint64_t& hash = chain[static_cast<size_t>(i)];
    hash ^= uint64_t{1} << (i % 64);
    if (i % 64 < 8) hash += 1000;  // no hash of another block
    EXPECT_EQ(worker.index.Match(prompt)[0].gpu_tokens, i * 16);
    EXPECT_EQ(worker.index.Scores(prompt)[0].gpu_tokens, i * 16);
    hash = static_cast<uint64_t>(i + 1);
  }
}

TEST(PrefixIndexHashForms, LongAndEmptyByteHashesAreHashesToo) {
  OneWorker worker(Registered({Full()}));
  const std::vector<BlockHash> chain = {FromText(std::string(256, 'x')), FromText("")};
  worker.Apply(Batch(Store(chain)));
  EXPECT_EQ(worker.Match(chain, 33), 32);
  worker.Apply(Batch(Remove(chain)));
  EXPECT_EQ(worker.counters().residencies, 0u);
}

TEST(PrefixIndexHashForms, ClearAndRemovalReachAllForms) {
  OneWorker worker(Registered({Full()}));
  const std::vector<BlockHash> chain = {FromText("digest"), BlockHash::FromSigned(-1),
                                        BlockHash::FromUnsigned(1)};
  worker.Apply(Batch(Store(chain)));
  EXPECT_EQ(worker.Match(chain, 49), 48);
  worker.Apply(Batch(AllBlocksCleared{}));
  EXPECT_EQ(worker.counters().residencies, 0u);
  EXPECT_EQ(worker.Match(chain, 49), 0);
}

}  // namespace
}  // namespace kvcast::testing
