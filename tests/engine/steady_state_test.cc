// After the buffers have grown, allocating, caching and freeing blocks takes no heap memory per
// block.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <new>

#include "tests/support/engine_testing.h"

// g++ 12 inlines operator delete into std::free, but not operator new into malloc.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {
int64_t heap_allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++heap_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++heap_allocations;
  return std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace kvcast::engine {
namespace {

// Counts the heap allocations of one request without events: allocate, cache, free.
int64_t AllocationsOfOneRequest(TestEngine& engine, CacheRequest& request) {
  const int64_t before = heap_allocations;
  CacheManager& cache = engine.cache();
  const bool ok =
      cache.AllocateSlots(request, {.new_tokens = static_cast<int64_t>(request.tokens.size())});
  cache.Free(request);
  const int64_t spent = heap_allocations - before;
  EXPECT_TRUE(ok);
  return spent;
}

TEST(SteadyState, ALongRequestTakesNoMoreHeapThanAShortRequest) {
  TestEngine engine(Config({Full(), Window(64), Mamba(MambaMode::kAlign)}, 4000), false);
  CacheRequest small = Request("small", Tokens(16 * 4));
  CacheRequest large = Request("large", Tokens(16 * 1000, 100000));
  for (int warm_up = 0; warm_up < 3; ++warm_up) {
    AllocationsOfOneRequest(engine, small);
    AllocationsOfOneRequest(engine, large);
  }
  EXPECT_LE(AllocationsOfOneRequest(engine, small), 4);
  EXPECT_LE(AllocationsOfOneRequest(engine, large), 4);
}

}  // namespace
}  // namespace kvcast::engine
