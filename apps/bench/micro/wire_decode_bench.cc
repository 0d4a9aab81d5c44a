// Measures three things: DecodeBatch on batches like those of an engine; msgpack-cxx, which unpacks
// the same bytes into its object tree; and EncodeBatch. A decoder that uses msgpack-cxx would still
// have to walk the tree.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <msgpack.hpp>
#include <random>
#include <vector>

#include "kvcast/wire/wire.h"

namespace kvcast {
namespace {

constexpr int64_t kBlockSize = 16;

BlockStored StoredEvent(int64_t blocks, std::mt19937_64& random) {
  BlockStored event;
  std::vector<TokenId>& tokens = event.token_ids.emplace();
  for (int64_t i = 0; i < blocks; ++i) {
    event.block_hashes.push_back(BlockHash::FromUnsigned(random()));
    for (int64_t k = 0; k < kBlockSize; ++k) {
      tokens.push_back(static_cast<TokenId>(random() % 150000));
    }
  }
  event.parent_block_hash = BlockHash::FromUnsigned(random());
  event.block_size = kBlockSize;
  event.medium = kMediumGpu;
  event.extra_keys.emplace(event.block_hashes.size());
  event.group_idx = 0;
  event.kv_cache_spec_kind = "full_attention";
  return event;
}

// One engine step. It removes `stored` blocks, and `stored` requests store `blocks` new blocks
// each.
EventBatch Step(int64_t stored, int64_t blocks, uint64_t seed) {
  std::mt19937_64 random(seed);
  EventBatch batch;
  batch.ts = 1756000000.123456;
  batch.data_parallel_rank = 0;
  for (int64_t i = 0; i < stored; ++i) {
    BlockRemoved removed;
    removed.block_hashes = {BlockHash::FromUnsigned(random())};
    removed.medium = kMediumGpu;
    removed.group_idx = 0;
    batch.events.push_back(removed);
    batch.events.push_back(StoredEvent(blocks, random));
  }
  return batch;
}

// Different steps, so that the branch predictor cannot learn one of them.
constexpr size_t kSteps = 64;

std::vector<std::vector<uint8_t>> Payloads(const benchmark::State& state) {
  std::vector<std::vector<uint8_t>> payloads(kSteps);
  for (size_t i = 0; i < kSteps; ++i) {
    const EventBatch batch = Step(state.range(0), state.range(1), i);
    const auto dialect = static_cast<Dialect>(state.range(2));
    if (!EncodeBatch(batch, dialect, payloads[i]).ok()) payloads[i].clear();
  }
  return payloads;
}

void BM_Decode(benchmark::State& state) {
  const std::vector<std::vector<uint8_t>> payloads = Payloads(state);
  EventBatch batch;
  DecodeCounts counts;
  size_t bytes = 0;
  size_t step = 0;
  for (auto _ : state) {
    const std::vector<uint8_t>& payload = payloads[step++ % kSteps];
    bytes += payload.size();
    if (!DecodeBatch(payload, WireLimits(), batch, counts).ok()) state.SkipWithError("rejected");
    benchmark::DoNotOptimize(batch.events.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}

void BM_MsgpackObject(benchmark::State& state) {
  const std::vector<std::vector<uint8_t>> payloads = Payloads(state);
  size_t bytes = 0;
  size_t step = 0;
  for (auto _ : state) {
    const std::vector<uint8_t>& payload = payloads[step++ % kSteps];
    bytes += payload.size();
    const msgpack::object_handle handle =
        msgpack::unpack(reinterpret_cast<const char*>(payload.data()), payload.size());
    benchmark::DoNotOptimize(handle.get().via.array.ptr);
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}

void BM_Encode(benchmark::State& state) {
  const EventBatch batch = Step(state.range(0), state.range(1), 42);
  std::vector<uint8_t> payload;
  for (auto _ : state) {
    payload.clear();
    if (!EncodeBatch(batch, static_cast<Dialect>(state.range(2)), payload).ok()) {
      state.SkipWithError("refused");
    }
    benchmark::DoNotOptimize(payload.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(payload.size() * state.iterations()));
}

// Arguments: number of BlockStored events, blocks per event, dialect.
void Shapes(benchmark::internal::Benchmark* bench) {
  for (const Dialect dialect : {Dialect::kVllm10, Dialect::kVllm8}) {
    bench->Args({1, 4, static_cast<int64_t>(dialect)});
    bench->Args({8, 8, static_cast<int64_t>(dialect)});
    bench->Args({8, 64, static_cast<int64_t>(dialect)});
  }
}
BENCHMARK(BM_Decode)->Apply(Shapes);
BENCHMARK(BM_MsgpackObject)->Apply(Shapes);
BENCHMARK(BM_Encode)->Apply(Shapes);

}  // namespace
}  // namespace kvcast

BENCHMARK_MAIN();
