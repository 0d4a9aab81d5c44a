// An engine with an offloading connector. After a step has computed chunks of a prompt, the engine
// copies them to host memory. If the GPU's cache has lost chunks, the engine loads them from host
// memory. The events announce the blocks of both tiers.
//
//   engine_offload     prints its endpoints, serves four requests, prints the number of published
//                      batches, and ends when its input ends
//
// In this example the GPU pool is plain memory. An engine with a GPU uses a CudaCopyBackend.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/offload/offload_scheduler.h"
#include "kvcast/offload/offload_transfer.h"
#include "kvcast/stream/publisher.h"
#include "kvcast/transfer/host_copy_backend.h"
#include "kvcast/transfer/host_pool.h"
#include "kvcast/transfer/transfer_engine.h"

namespace {

using namespace kvcast;

constexpr int64_t kBlockSize = 16;  // tokens
constexpr size_t kBlockBytes = 4096;
constexpr int64_t kGpuBlocks = 21;  // including the null block; enough for one request
constexpr int64_t kHostBlocks = 100;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

CacheConfig SmallCache() {
  CacheConfig config;
  config.groups = {{.kind = SpecKind::kFullAttention, .block_size = kBlockSize}};
  config.num_blocks = kGpuBlocks;
  config.max_model_len = 1024;
  return config;
}

OffloadSchedulerConfig ConnectorFor(const CacheConfig& cache) {
  OffloadSchedulerConfig config;
  config.rules = cache.rules;
  config.layout.groups = cache.groups;
  config.layout.tokens_per_hash = cache.hash_block_size;
  config.memory.capacity_bytes = kHostBlocks * static_cast<int64_t>(kBlockBytes);
  config.memory.chunk_bytes = {static_cast<int64_t>(kBlockBytes)};
  return config;
}

TransferConfig CopiesBetween(const HostPool& gpu, const HostPool& host, int64_t slot_bytes) {
  const BlockPart part{.base = gpu.base(), .block_stride = kBlockBytes, .row_bytes = kBlockBytes};
  TransferConfig config;
  config.groups = {{{{part}, kGpuBlocks}, /*blocks_per_chunk=*/1}};
  config.host = {host.base(), host.bytes(), static_cast<size_t>(slot_bytes)};
  return config;
}

PublisherConfig AnyPorts() {
  PublisherConfig config;
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = "tcp://127.0.0.1:0";
  config.topic = "kv.example";
  return config;
}

// Serves one request after the other. A real engine schedules many requests in a step.
class Engine {
 public:
  const Publisher& publisher() const { return *publisher_; }

  void Serve(CacheRequest& request) {
    const OffloadRequestId id(next_id_++);
    Check(scheduler_->AddRequest(id, request));
    cache_->BeginStep();
    const PrefixHit hit = cache_->GetComputedBlocks(request);
    // The match is never pending here, because no copy is in progress when a request arrives.
    const int64_t loaded = scheduler_->MatchedTokens(id, hit.tokens, /*now_ms=*/0).tokens.value();
    const int64_t tokens = std::ssize(request.tokens);
    int64_t computed = hit.tokens;
    AllocateArgs slots{.new_tokens = tokens - computed, .hit = &hit};
    if (loaded > 0) {
      Load(id, request, hit, loaded);
      // If all tokens are loaded, the last token is computed again.
      computed = std::min(hit.tokens + loaded, tokens - 1);
      slots = {.computed_tokens = computed, .new_tokens = tokens - computed};
    }
    if (!cache_->AllocateSlots(request, slots)) return Fail("the pool has too few free blocks");
    const auto tables = Tables(request);
    const OffloadStep::Scheduled scheduled{id, computed, tokens - computed, true, tables};
    BuildStep({{&scheduled, 1}, {}, {}});
    Compute(request, computed);
    scheduler_->RequestFinished(id, tokens, /*aborted=*/false);
    cache_->Free(request);
    BuildStep({});  // an empty step; the stores of the previous step begin in it
    EndCopies();
    Publish();
    std::printf("%s: %lld tokens from the GPU, %lld loaded, %lld computed; %lld blocks are wrong\n",
                request.id.c_str(), static_cast<long long>(hit.tokens),
                static_cast<long long>(loaded), static_cast<long long>(tokens - computed),
                static_cast<long long>(wrong_blocks_));
  }

 private:
  static void Fail(const std::string& text) {
    std::fprintf(stderr, "%s\n", text.c_str());
    std::exit(1);
  }
  static void Check(const Status& status) {
    if (!status.ok()) Fail(status.ToString());
  }

  // Allocates blocks for the hit and for the `loaded` tokens after it. Loads these tokens.
  void Load(OffloadRequestId id, CacheRequest& request, const PrefixHit& hit, int64_t loaded) {
    const AllocateArgs slots{.external_tokens = loaded, .hit = &hit, .delay_caching = true};
    if (!cache_->AllocateSlots(request, slots)) return Fail("the pool has too few free blocks");
    Check(scheduler_->UpdateAfterAlloc(id, loaded, Tables(request)));
    BuildStep({});
    EndCopies();
    cache_->CacheBlocks(request, hit.tokens + loaded);
    for (int64_t i = 0; i < (hit.tokens + loaded) / kBlockSize; ++i) {
      wrong_blocks_ += *BytesOf(request, i) != ByteOf(request, i);
    }
  }

  // Ends the scheduling of a step. The stores of the previous step run during this step. If this
  // step gives the blocks of a store to another request, the store must end first.
  void BuildStep(const OffloadStep& step) {
    for (const OffloadJob& job : std::exchange(stores_, {})) Submit(job);
    const OffloadPlan& plan = scheduler_->BuildStep(step);
    std::vector<TransferJobId> flushed;
    for (const OffloadJobId job : plan.flush) flushed.push_back(TransferIdOf(job));
    for (const OffloadJob& job : plan.stores) {
      if (std::ranges::binary_search(plan.flush, job.id)) {
        Submit(job);
      } else {
        stores_.push_back(job);
      }
    }
    copies_->Wait(flushed);
    for (const OffloadJob& job : plan.loads) Submit(job);
    Publish();
  }
  void Submit(const OffloadJob& job) { copies_->Submit(ToTransferJob(job, *scheduler_, lists_)); }

  // Waits for all copies, and reports them to the scheduler. The scheduler then announces the
  // chunks.
  void EndCopies() {
    copies_->WaitAll();
    std::vector<TransferResult> results;
    copies_->Poll(results);
    std::vector<OffloadCompletion> ended;
    for (const TransferResult& result : results) {
      ended.push_back({OffloadIdOf(result.id), 1, result.status.ok()});
    }
    OffloadArrivals arrivals;
    scheduler_->OnCompletions(ended, arrivals);
    // A real engine computes the tokens of a failed load.
    if (!arrivals.failed.empty()) Fail("a load failed");
  }

  // Publishes the events of both tiers in one batch.
  void Publish() {
    EventBatch batch;
    batch.ts =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    batch.events = cache_->TakeEvents();
    for (Event& event : scheduler_->TakeEvents()) batch.events.push_back(std::move(event));
    if (!batch.events.empty()) Check(publisher_->Publish(std::move(batch)).status());
  }

  std::vector<std::vector<BlockId>> Tables(const CacheRequest& request) const {
    const auto table = cache_->BlockTable(request, GroupIdx(0));
    return {{table.begin(), table.end()}};
  }
  // In place of a model: writes bytes that depend on the first token of the block.
  void Compute(const CacheRequest& request, int64_t computed) {
    for (int64_t i = computed / kBlockSize; i < std::ssize(request.tokens) / kBlockSize; ++i) {
      std::memset(BytesOf(request, i), std::to_integer<int>(ByteOf(request, i)), kBlockBytes);
    }
  }
  std::byte* BytesOf(const CacheRequest& request, int64_t block) const {
    const auto table = cache_->BlockTable(request, GroupIdx(0));
    return gpu_.base() + table[static_cast<size_t>(block)].value * kBlockBytes;
  }
  static std::byte ByteOf(const CacheRequest& request, int64_t block) {
    return std::byte(request.tokens[static_cast<size_t>(block * kBlockSize)] / kBlockSize + 1);
  }

  std::unique_ptr<CacheManager> cache_ = Must(CacheManager::Create(
      SmallCache(), Must(BlockHasher::FromSeed(HashAlgorithm::kSha256, kDefaultHashSeed))));
  std::unique_ptr<OffloadScheduler> scheduler_ =
      Must(OffloadScheduler::Create(ConnectorFor(cache_->config())));
  HostPool gpu_ = Must(HostPool::Create({.bytes = kGpuBlocks * kBlockBytes}));
  HostPool host_ = Must(HostPool::Create({.bytes = kHostBlocks * kBlockBytes}));
  std::unique_ptr<TransferEngine> copies_ =
      Must(TransferEngine::Create(CopiesBetween(gpu_, host_, scheduler_->manager().slot_bytes()),
                                  Must(MakeHostCopyBackend({.threads = 1}))));
  std::unique_ptr<Publisher> publisher_ = Must(Publisher::Create(AnyPorts()));
  std::vector<OffloadJob> stores_;  // stores that begin in the next step
  TransferLists lists_;
  uint64_t next_id_ = 0;
  int64_t wrong_blocks_ = 0;  // reused blocks with wrong bytes, over all requests
};

CacheRequest RequestOf(const std::string& id, TokenId first_token) {
  CacheRequest request;
  request.id = id;
  request.tokens.resize(300);
  std::iota(request.tokens.begin(), request.tokens.end(), first_token);
  request.prompt_tokens = 300;
  return request;
}

}  // namespace

int main() {
  Engine engine;
  std::printf("%s %s\n", engine.publisher().endpoint().c_str(),
              engine.publisher().replay_endpoint().c_str());
  // The GPU pool cannot hold both prompts at the same time.
  CacheRequest requests[] = {RequestOf("first", 0), RequestOf("second", 2000),
                             RequestOf("first again", 0), RequestOf("second again", 2000)};
  for (CacheRequest& request : requests) engine.Serve(request);
  std::printf("%llu batches published\n",
              static_cast<unsigned long long>(engine.publisher().counters().batches));
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}
