// Measures how fast BlockHasher computes the hash chain of a prompt of 10,000 tokens. The baseline
// computes the digests of the same preimages, which are serialised beforehand. Each iteration
// measures the chain and then the baseline.
//
// Reported per benchmark: chain_us and raw_us for the whole prompt (fastest iteration), and ratio =
// chain_us / raw_us.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <openssl/evp.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <random>

#include "kvcast/hash/block_hash.h"

namespace kvcast {
namespace {

constexpr size_t kTokens = 10000;
constexpr int64_t kBlock = 16;
constexpr TokenId kVocabulary = 151936;

std::vector<TokenId> Prompt() {
  std::mt19937_64 random(20260817);
  std::uniform_int_distribution<TokenId> token(0, kVocabulary - 1);
  std::vector<TokenId> tokens(kTokens);
  std::generate(tokens.begin(), tokens.end(), [&] { return token(random); });
  return tokens;
}

BlockHasher Hasher(HashAlgorithm algorithm) {
  Result<BlockHasher> hasher = BlockHasher::FromSeed(algorithm, kDefaultHashSeed);
  if (!hasher.ok()) std::abort();
  return std::move(hasher).value();
}

// The preimages of the chain of `tokens`, in order.
std::vector<std::string> Preimages(BlockHasher& hasher, std::span<const TokenId> tokens,
                                   const HashInputs& inputs) {
  std::vector<Digest> chain;
  hasher.ExtendChain(tokens, kBlock, inputs, chain);
  std::vector<std::string> preimages;
  for (size_t i = 0; i < chain.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * kBlock;
    preimages.push_back(hasher.Preimage(i == 0 ? nullptr : &chain[i - 1],
                                        tokens.subspan(i * kBlock, kBlock),
                                        ExtraKeysFor(inputs, begin, begin + kBlock)));
  }
  return preimages;
}

class RawSha256 {
 public:
  RawSha256() : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context_(EVP_MD_CTX_new()) {
    if (!algorithm_ || !context_) std::abort();
  }
  ~RawSha256() {
    EVP_MD_CTX_free(context_);
    EVP_MD_free(algorithm_);
  }
  void operator()(const std::string& bytes) {
    unsigned size = 0;
    EVP_DigestInit_ex2(context_, algorithm_, nullptr);
    EVP_DigestUpdate(context_, bytes.data(), bytes.size());
    EVP_DigestFinal_ex(context_, digest_, &size);
    benchmark::DoNotOptimize(digest_);
  }

 private:
  EVP_MD* algorithm_;
  EVP_MD_CTX* context_;
  unsigned char digest_[32];
};

struct RawXxh3 {
  void operator()(const std::string& bytes) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
    benchmark::DoNotOptimize(canonical);
  }
};

double Microseconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

template <typename Raw>
void ChainAgainstRaw(benchmark::State& state, HashAlgorithm algorithm, const HashInputs& inputs) {
  const std::vector<TokenId> tokens = Prompt();
  BlockHasher hasher = Hasher(algorithm);
  const std::vector<std::string> preimages = Preimages(hasher, tokens, inputs);
  Raw raw;
  std::vector<Digest> chain;
  double chain_us = std::numeric_limits<double>::max();
  double raw_us = chain_us;
  for (auto _ : state) {
    auto start = std::chrono::steady_clock::now();
    chain.clear();
    hasher.ExtendChain(tokens, kBlock, inputs, chain);
    benchmark::DoNotOptimize(chain.data());
    chain_us = std::min(chain_us, Microseconds(start));
    start = std::chrono::steady_clock::now();
    for (const std::string& preimage : preimages) raw(preimage);
    raw_us = std::min(raw_us, Microseconds(start));
  }
  state.counters["chain_us"] = chain_us;
  state.counters["raw_us"] = raw_us;
  state.counters["ratio"] = chain_us / raw_us;
}

HashInputs Lora() {
  HashInputs inputs;
  inputs.lora_name = "a-lora-adapter-with-a-long-name";
  return inputs;
}

void Sha256Chain(benchmark::State& state, HashAlgorithm algorithm, const HashInputs& inputs) {
  ChainAgainstRaw<RawSha256>(state, algorithm, inputs);
}

void Xxh3Chain(benchmark::State& state, HashAlgorithm algorithm, const HashInputs& inputs) {
  ChainAgainstRaw<RawXxh3>(state, algorithm, inputs);
}

BENCHMARK_CAPTURE(Sha256Chain, pickle, HashAlgorithm::kSha256, HashInputs{});
BENCHMARK_CAPTURE(Sha256Chain, cbor, HashAlgorithm::kSha256Cbor, HashInputs{});
BENCHMARK_CAPTURE(Sha256Chain, pickle_lora, HashAlgorithm::kSha256, Lora());
BENCHMARK_CAPTURE(Xxh3Chain, pickle, HashAlgorithm::kXxhash, HashInputs{});
BENCHMARK_CAPTURE(Xxh3Chain, cbor, HashAlgorithm::kXxhashCbor, HashInputs{});
BENCHMARK_CAPTURE(Xxh3Chain, pickle_lora, HashAlgorithm::kXxhash, Lora());

}  // namespace
}  // namespace kvcast

BENCHMARK_MAIN();
