// A small router: follows the events of one engine, and prints how many tokens of a prompt the
// engine can reuse.
//
//   route_request ENDPOINT REPLAY_ENDPOINT [BATCHES]
//
// engine_publish and engine_offload print their endpoints. The router queries its index after
// BATCHES batches (default: 1), or after 10 seconds.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/stream/subscriber.h"
#include "kvcast/wire/wire.h"

namespace {

using namespace kvcast;

constexpr WorkerId kEngine{0};

std::vector<BlockHash> HashChain(BlockHasher& hasher, const std::vector<TokenId>& prompt) {
  std::vector<Digest> digests;
  hasher.ExtendChain(prompt, /*hash_block_size=*/16, HashInputs{}, digests);
  std::vector<BlockHash> chain;
  for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, EventHashForm::kInt64));
  return chain;
}

}  // namespace

int main(int argc, char** argv) {
  const int wanted = argc == 4 ? std::atoi(argv[3]) : 1;
  if (argc < 3 || argc > 4 || wanted < 1) {
    std::fprintf(stderr, "usage: route_request ENDPOINT REPLAY_ENDPOINT [BATCHES]\n");
    return 2;
  }
  auto hasher = BlockHasher::FromSeed(HashAlgorithm::kSha256, kDefaultHashSeed);
  if (!hasher.ok()) return std::fprintf(stderr, "%s\n", hasher.status().ToString().c_str()), 1;

  // The index learns groups, kinds and windows from the events.
  PrefixIndex index;
  // The rule of engine_offload's scheduler. It has no effect for an engine without host memory.
  const WorkerConfig config{.name = "engine", .offload_rule = OffloadRule::kOffloadScheduler};
  if (!index.AddWorker(kEngine, config).ok()) return 1;
  std::atomic<int> batches{0};
  auto sink = std::make_shared<BatchSink>(
      [&](Seq, std::span<const uint8_t> payload) {
        EventBatch batch;
        DecodeCounts counts;
        if (DecodeBatch(payload, WireLimits{}, batch, counts).ok()) index.Apply(kEngine, batch);
        ++batches;
      },
      [&](ResetReason) { index.ClearWorker(kEngine); });
  auto subscriber = Subscriber::Create({});
  if (!subscriber.ok()) return 1;
  const Status added = (*subscriber)->Add({kEngine, argv[1], argv[2], ""}, sink);
  if (!added.ok()) return std::fprintf(stderr, "%s\n", added.ToString().c_str()), 1;

  for (int i = 0; i < 100 && batches < wanted; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::vector<TokenId> prompt(150);
  // The requests of the engines begin with the same tokens.
  std::iota(prompt.begin(), prompt.end(), 0);
  for (const WorkerMatch& match : index.Match(HashChain(*hasher, prompt), 16, 150)) {
    std::printf("engine can reuse %lld of 150 tokens\n", static_cast<long long>(match.gpu_tokens));
    if (match.with_cpu_tokens > match.gpu_tokens) {
      std::printf("with loads from host memory, it can reuse %lld\n",
                  static_cast<long long>(match.with_cpu_tokens));
    }
  }
}
