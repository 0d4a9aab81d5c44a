// Measures how fast CacheManager allocates, caches, frees and looks up blocks, with a pool of 1 Mi
// blocks. Every block is cached, so each allocation evicts a block. Hash chains are computed
// beforehand.
//
// The baseline (BM_Floor) runs in the same process. It does only the list and map operations that
// this sequence needs: it pops the head, erases the old key, inserts the new key, and appends to
// the tail. A key has 8 bytes, and a value has 4 bytes.
//
// Counters per benchmark: per_block (time); heap_per_block (allocations), except for BM_Lookup.
// SPDX-License-Identifier: Apache-2.0
#include <absl/container/flat_hash_map.h>
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <random>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/wire/wire.h"
#include "src/engine/free_block_queue.h"

// g++ 12 inlines operator delete, and does not inline operator new. It then sees memory of operator
// new in a call of std::free, and warns.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {
uint64_t heap_allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++heap_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace kvcast {
namespace {

constexpr int64_t kBlocks = 1 << 20;
constexpr int64_t kBlockSize = 16;
constexpr int64_t kBlocksOfRequest = 625;
constexpr int64_t kTokens = kBlocksOfRequest * kBlockSize;
// The pool holds half of the requests, so a prompt is evicted before its next use.
constexpr size_t kRequests = 2 * kBlocks / kBlocksOfRequest;

// Requests with random tokens and random digests as their chain.
std::vector<CacheRequest>& Requests() {
  static auto* requests = new std::vector<CacheRequest>([] {
    std::mt19937_64 random(7);
    std::vector<CacheRequest> made(kRequests);
    for (size_t i = 0; i < made.size(); ++i) {
      made[i].id = std::to_string(i);
      made[i].prompt_tokens = kTokens;
      for (int64_t t = 0; t < kTokens; ++t) {
        made[i].tokens.push_back(static_cast<TokenId>(random() % 151936));
      }
      for (int64_t b = 0; b < kBlocksOfRequest; ++b) {
        Digest digest;
        digest.size = 32;
        for (size_t at = 0; at < 32; at += 8) {
          const uint64_t word = random();
          std::memcpy(&digest.data[at], &word, 8);
        }
        made[i].chain.push_back(digest);
      }
    }
    return made;
  }());
  return *requests;
}

std::unique_ptr<CacheManager> Manager(bool events) {
  CacheConfig config;
  config.groups = {GroupSpec{.block_size = kBlockSize}};
  config.num_blocks = kBlocks + 1;
  auto hasher = BlockHasher::FromSeed(HashAlgorithm::kSha256, kDefaultHashSeed);
  auto made =
      CacheManager::Create(config, std::move(hasher).value(), EventOptions{.enabled = events});
  if (!made.ok()) std::abort();
  return std::move(made).value();
}

void AllocateAndFree(CacheManager& manager, CacheRequest& request) {
  if (!manager.AllocateSlots(request, {.new_tokens = kTokens})) std::abort();
  manager.Free(request);
}

// Runs `serve`, which allocates and frees the blocks of a request, for one request after another.
// The pool and all buffers are warm.
template <typename Serve>
void RunRequests(benchmark::State& state, const Serve& serve) {
  std::vector<CacheRequest>& requests = Requests();
  size_t next = 0;
  for (; next < kRequests; ++next) serve(requests[next]);
  const uint64_t heap_before = heap_allocations;
  for (auto _ : state) serve(requests[next++ % kRequests]);
  const auto blocks = static_cast<double>(state.iterations() * kBlocksOfRequest);
  // The counter is in seconds per block. The report prints 118 ns as 118n.
  state.counters["per_block"] =
      benchmark::Counter(blocks, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["heap_per_block"] = static_cast<double>(heap_allocations - heap_before) / blocks;
}

void BM_EventsOff(benchmark::State& state) {
  const auto manager = Manager(false);
  RunRequests(state, [&](CacheRequest& request) { AllocateAndFree(*manager, request); });
}

void BM_EventsTaken(benchmark::State& state) {
  const auto manager = Manager(true);
  RunRequests(state, [&](CacheRequest& request) {
    AllocateAndFree(*manager, request);
    benchmark::DoNotOptimize(manager->TakeEvents());
  });
}

void BM_EventsAsPayload(benchmark::State& state) {
  const auto manager = Manager(true);
  std::vector<uint8_t> payload;
  RunRequests(state, [&](CacheRequest& request) {
    AllocateAndFree(*manager, request);
    payload.clear();
    if (!manager->TakePayload(1.5, 0, kDefaultDialect, payload).ok()) std::abort();
  });
}

// Looks up the last 1,000 prompts that were stored. Each prompt has 625 blocks. The pool holds all
// blocks of these prompts.
void BM_Lookup(benchmark::State& state) {
  const auto manager = Manager(false);
  std::vector<CacheRequest>& requests = Requests();
  for (CacheRequest& request : requests) AllocateAndFree(*manager, request);
  size_t next = 0;
  for (auto _ : state) {
    CacheRequest& request = requests[kRequests - 1 - next++ % 1000];
    if (manager->GetComputedBlocks(request).tokens != kTokens - kBlockSize) std::abort();
  }
  state.counters["per_block"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kBlocksOfRequest),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_Floor(benchmark::State& state) {
  engine::FreeBlockQueue queue(kBlocks);
  absl::flat_hash_map<uint64_t, uint32_t> map;
  map.reserve(kBlocks);
  std::vector<uint64_t> key_of(kBlocks, 0);
  std::vector<BlockId> held(kBlocksOfRequest);
  RunRequests(state, [&](CacheRequest& request) {
    for (size_t i = 0; i < held.size(); ++i) {
      const BlockId block = queue.PopFront();
      uint64_t& key = key_of[block.value];
      if (key != 0) map.erase(key);
      key = request.chain[i].low64();
      map.emplace(key, block.value);
      held[held.size() - 1 - i] = block;
    }
    queue.Append(held);
  });
}

BENCHMARK(BM_Floor);
BENCHMARK(BM_Lookup);
BENCHMARK(BM_EventsOff);
BENCHMARK(BM_EventsTaken);
BENCHMARK(BM_EventsAsPayload);

}  // namespace
}  // namespace kvcast

BENCHMARK_MAIN();
