// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "apps/bench/index/churn.h"
#include "apps/bench/index/commands.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/samples.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/content_key.h"

namespace kvcast::bench {
namespace {

constexpr double kXxh3Target = 24;  // microseconds for 10,000 tokens
constexpr double kSha256Target = 1.3;
constexpr int64_t kTurnTokens = 512;
constexpr TokenId kVocabulary = 151'936;

constexpr char kHashMethod[] =
    "Computes the chain of block hashes of a prompt from its token ids, in blocks of 16\n"
    "tokens. XXH3: the time. SHA-256: the ratio to the time of OpenSSL's EVP digests of the\n"
    "same preimages. These digests use one context, and fetch the algorithm once. The\n"
    "preimages are serialised before the measurement, and both sides alternate. Figures are\n"
    "the median and the p99 of all runs. next_turn: the conversation grows by 512 tokens, and\n"
    "BlockHasher::ExtendChain continues the known chain. The figure is the share of the time\n"
    "of the whole chain. content_keys: the keys by which queries look up blocks.";

std::vector<TokenId> Prompt(int64_t tokens) {
  std::mt19937_64 random(20260817);
  std::uniform_int_distribution<TokenId> token(0, kVocabulary - 1);
  std::vector<TokenId> prompt(static_cast<size_t>(tokens));
  std::generate(prompt.begin(), prompt.end(), [&] { return token(random); });
  return prompt;
}

class RawSha256 {
 public:
  RawSha256()
      : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr), &EVP_MD_free),
        context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {}
  bool works() const { return algorithm_ && context_; }
  unsigned operator()(const std::string& bytes) {
    unsigned char digest[32];
    unsigned size = 0;
    EVP_DigestInit_ex2(context_.get(), algorithm_.get(), nullptr);
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    return digest[0];
  }

 private:
  std::unique_ptr<EVP_MD, void (*)(EVP_MD*)> algorithm_;
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

struct Times {
  Samples chain;
  Samples raw;
  Samples next_turn;
};

// `raw` computes the digest of one preimage and returns a part of it.
template <typename Raw>
Times TimeChain(BlockHasher& hasher, std::span<const TokenId> tokens, int64_t rounds, Raw raw) {
  const auto hash_block_size = static_cast<size_t>(kBlockTokens);
  std::vector<Digest> chain;
  hasher.ExtendChain(tokens, kBlockTokens, {}, chain);
  std::vector<std::string> preimages;
  for (size_t i = 0; i < chain.size(); ++i) {
    preimages.push_back(hasher.Preimage(i == 0 ? nullptr : &chain[i - 1],
                                        tokens.subspan(i * hash_block_size, hash_block_size), {}));
  }
  const size_t known = chain.size() - std::min<size_t>(chain.size(), kTurnTokens / kBlockTokens);
  Times times;
  volatile unsigned sink = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    chain.clear();
    auto start = Clock::now();
    hasher.ExtendChain(tokens, kBlockTokens, {}, chain);
    times.chain.Add(NanosecondsSince(start));
    sink = sink + chain.back().data[0];
    unsigned all = 0;
    start = Clock::now();
    for (const std::string& preimage : preimages) all += raw(preimage);
    times.raw.Add(NanosecondsSince(start));
    sink = sink + all;
    chain.resize(known);
    start = Clock::now();
    hasher.ExtendChain(tokens, kBlockTokens, {}, chain);
    times.next_turn.Add(NanosecondsSince(start));
  }
  return times;
}

void Print(Report& report, const std::string& name, const Times& times) {
  report.Figure(name + ".chain_p50", times.chain.median() * 1e-3, "us");
  report.Figure(name + ".chain_p99", times.chain.Quantile(0.99) * 1e-3, "us");
  report.Figure(name + ".raw_p50", times.raw.median() * 1e-3, "us");
  report.Figure(name + ".next_turn", times.next_turn.median() / times.chain.median(), "of whole");
}

// Measures content keys with the fastest code of this machine, and with portable code.
void RunContentKeys(std::span<const TokenId> tokens, const HashBenchOptions& options,
                    Report& report) {
  constexpr double kVectorTarget = 4;  // microseconds for 10,000 tokens
  constexpr double kPortableTarget = 15;
  const ContentKeys& content = ContentKeys::OfProcess();
  std::vector<ContentKey> keys(tokens.size() / kBlockTokens);
  const ContentKey root = content.Root({});
  const auto time = [&](auto&& run) {
    Samples times;
    volatile uint64_t sink = 0;
    for (int64_t i = 0; i < options.rounds; ++i) {
      const auto start = Clock::now();
      run();
      times.Add(NanosecondsSince(start));
      sink = sink + keys.back();
    }
    return times;
  };
  const double size = static_cast<double>(options.tokens) / 10'000;
  const Samples fast = time([&] { content.ExtendBy(root, tokens, kBlockTokens, keys); });
  const Samples portable =
      time([&] { content.ExtendByPortably(root, tokens, kBlockTokens, keys); });
  const bool vector = ContentKeys::Code() != "portable";
  report.Target("hash.content_keys." + std::string(ContentKeys::Code()), fast.median() * 1e-3, "us",
                (vector ? kVectorTarget : kPortableTarget) * size);
  report.Target("hash.content_keys.by_portable_code", portable.median() * 1e-3, "us",
                kPortableTarget * size);
  report.Figure("hash.content_keys.p99", fast.Quantile(0.99) * 1e-3, "us");
}

}  // namespace

int RunHashBench(const HashBenchOptions& options) {
  Report report("hash", kHashMethod, options.json);
  const std::vector<TokenId> tokens = Prompt(options.tokens);
  const double xxh3_target = kXxh3Target * static_cast<double>(options.tokens) / 10'000;
  RawSha256 sha256;
  if (!sha256.works()) return tools::Fail("OpenSSL has no SHA-256");
  const auto xxh3 = [](const std::string& bytes) {
    return static_cast<unsigned>(XXH3_128bits(bytes.data(), bytes.size()).low64);
  };
  for (const HashAlgorithm algorithm : {HashAlgorithm::kXxhash, HashAlgorithm::kXxhashCbor,
                                        HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor}) {
    auto hasher = BlockHasher::FromSeed(algorithm, kDefaultHashSeed);
    if (!hasher.ok()) return tools::Fail(hasher.status());
    const std::string name = "hash." + std::string(HashAlgorithmName(algorithm));
    const bool is_xxh3 =
        algorithm == HashAlgorithm::kXxhash || algorithm == HashAlgorithm::kXxhashCbor;
    if (is_xxh3) {
      const Times times = TimeChain(*hasher, tokens, options.rounds, xxh3);
      report.Target(name, times.chain.median() * 1e-3, "us", xxh3_target);
      Print(report, name, times);
    } else {
      const Times times = TimeChain(*hasher, tokens, options.rounds, std::ref(sha256));
      report.Target(name, times.chain.median() / times.raw.median(), "ratio", kSha256Target);
      Print(report, name, times);
    }
  }
  RunContentKeys(tokens, options, report);
  return report.Finish();
}

}  // namespace kvcast::bench
