// An engine that publishes its events. A cache manager with one full-attention group and one
// sliding-window group serves requests, and a publisher sends the events of its block pool.
//
//   engine_publish [REPEATS]     prints its endpoints, then serves one request per second
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/stream/publisher.h"

namespace {

using namespace kvcast;

CacheConfig SmallHybridCache() {
  CacheConfig config;
  config.groups = {{.kind = SpecKind::kFullAttention, .block_size = 16},
                   {.kind = SpecKind::kSlidingWindow, .block_size = 16, .sliding_window = 64}};
  config.num_blocks = 200;
  config.max_model_len = 1024;
  return config;
}

// Serves one request: looks up its prefix, allocates blocks for the rest of the prompt in one step,
// and frees them. Returns the reused tokens, or -1 on an error.
int64_t Serve(CacheManager& cache, Publisher& publisher, CacheRequest& request) {
  cache.BeginStep();
  const PrefixHit hit = cache.GetComputedBlocks(request);
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  if (!cache.AllocateSlots(request, {.new_tokens = tokens - hit.tokens, .hit = &hit})) return -1;
  cache.Free(request);
  EventBatch batch;
  batch.ts =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  batch.events = cache.TakeEvents();
  if (!batch.events.empty() && !publisher.Publish(std::move(batch)).ok()) return -1;
  return hit.tokens;
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 3;
  auto hasher = BlockHasher::FromSeed(HashAlgorithm::kSha256, kDefaultHashSeed);
  if (!hasher.ok()) return std::fprintf(stderr, "%s\n", hasher.status().ToString().c_str()), 1;
  auto cache = CacheManager::Create(SmallHybridCache(), std::move(hasher).value());
  if (!cache.ok()) return std::fprintf(stderr, "%s\n", cache.status().ToString().c_str()), 1;
  PublisherConfig config;
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = "tcp://127.0.0.1:0";
  config.topic = "kv.example";
  auto publisher = Publisher::Create(config);
  if (!publisher.ok())
    return std::fprintf(stderr, "%s\n", publisher.status().ToString().c_str()), 1;
  std::printf("%s %s\n", (*publisher)->endpoint().c_str(), (*publisher)->replay_endpoint().c_str());
  std::fflush(stdout);

  for (int i = 0; i < repeats; ++i) {
    // All requests have the same first 128 tokens. The other 72 tokens differ.
    CacheRequest request;
    request.id = "request-" + std::to_string(i);
    request.tokens.resize(200);
    std::iota(request.tokens.begin(), request.tokens.begin() + 128, 0);
    std::iota(request.tokens.begin() + 128, request.tokens.end(), 1000 * (i + 1));
    request.prompt_tokens = 200;
    const int64_t reused = Serve(**cache, **publisher, request);
    std::printf("request %d: %lld of 200 prompt tokens reused\n", i,
                static_cast<long long>(reused));
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}
