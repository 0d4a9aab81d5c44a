// Hashing a prompt allocates no memory per block, with or without a LoRA name.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <new>

#include "tests/hash/hash_testing.h"

namespace {

size_t allocations = 0;

}  // namespace

// Not inlined: otherwise the compiler reports a mismatch of operator new and std::free.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (!memory) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace kvcast::testing {
namespace {

size_t AllocationsOf(BlockHasher& hasher, std::span<const TokenId> tokens, const HashInputs& inputs,
                     std::vector<Digest>& chain) {
  chain.clear();
  const size_t before = allocations;
  hasher.ExtendChain(tokens, 16, inputs, chain);
  return allocations - before;
}

TEST(ChainAllocation, NoneOnceTheChainAndTheScratchHaveTheirSize) {
  const std::vector<TokenId> tokens = TokenRange(0, 10000);
  HashInputs lora;
  lora.lora_name = "a LoRA name that is longer than a short string";
  for (const HashAlgorithm algorithm : kAllAlgorithms) {
    for (const HashInputs& inputs : {HashInputs{}, lora}) {
      BlockHasher hasher = MakeHasher(algorithm);
      std::vector<Digest> chain;
      EXPECT_GT(AllocationsOf(hasher, tokens, inputs, chain), 0u);
      EXPECT_EQ(AllocationsOf(hasher, tokens, inputs, chain), 0u);
      EXPECT_EQ(chain.size(), 625u);
    }
  }
}

TEST(ChainAllocation, AFreshHasherAllocatesTheSameForAnyPromptLength) {
  size_t counts[2];
  const size_t lengths[] = {160, 10000};
  for (int i = 0; i < 2; ++i) {
    const std::vector<TokenId> tokens = TokenRange(0, lengths[i]);
    BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
    std::vector<Digest> chain;
    counts[i] = AllocationsOf(hasher, tokens, {}, chain);
  }
  EXPECT_EQ(counts[0], counts[1]);
}

}  // namespace
}  // namespace kvcast::testing
