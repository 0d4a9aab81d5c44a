// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_router.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "apps/engine/engine_setup.h"
#include "kvcast/router/prompt_contents.h"
#include "kvcast/router/selector.h"
#include "kvcast/router/speculative_prefixes.h"
#include "kvcast/stream/subscriber.h"
#include "src/base/mutex.h"

namespace kvcast::tools {
namespace {

// A decode step costs little compared with a prefill, so the KV block of a running request counts
// as a tenth of a token to compute. A prefix that only one group still holds counts a little less
// than a hit.
CostWeights WeightsFor(const CacheOptions& options) {
  return {.recompute_token = 1.0,
          .load_token = options.load_rate > 0 ? options.prefill_rate / options.load_rate : 0.0,
          .active_prefill_token = 1.0,
          .decode_block = 0.1,
          .affinity_token = 0.9};
}

// The load that a routed request adds to its engine.
struct Booking {
  size_t engine = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_blocks = 0;
  bool decoding = false;
};

int64_t LongestOfAnyGroup(const WorkerMatch& match) {
  int64_t longest = 0;
  for (const int64_t tokens : match.per_group_tokens) longest = std::max(longest, tokens);
  return longest;
}

WorkerId Worker(size_t engine) { return WorkerId(static_cast<uint32_t>(engine)); }

}  // namespace

struct DemoRouter::Impl {
  Impl(RoutingPolicy routing, CacheConfig cache_config, BlockHasher block_hasher,
       EventHashForm hash_form, ExactnessAudit& exactness_audit)
      : policy(routing),
        cache(std::move(cache_config)),
        hasher(std::move(block_hasher)),
        form(hash_form),
        audit(exactness_audit) {}

  Status AddDetectors(const CacheOptions& options, size_t engines);
  void OnBatch(WorkerId worker, Seq seq, std::span<const uint8_t> payload);
  std::vector<WorkerMatch> Matches(const PromptNames& names, int64_t prompt_tokens) const;
  std::vector<Candidate> Candidates(const PromptNames& names, int64_t prompt_tokens,
                                    int64_t now_ms);
  void Book(int64_t number, size_t engine, int64_t prompt_tokens, int64_t reusable_tokens);

  const RoutingPolicy policy;
  const CacheConfig cache;
  BlockHasher hasher;
  const EventHashForm form;
  ExactnessAudit& audit;
  PrefixIndex index;
  std::vector<std::unique_ptr<PeerReader>> readers;  // by worker
  // Workers that are matched by the hash chain, and workers whose hashes cannot be computed.
  std::vector<WorkerId> by_chain;
  std::vector<WorkerId> by_content;
  Mutex speculative_mutex;
  SpeculativePrefixes speculative KV_GUARDED_BY(speculative_mutex);
  mutable Mutex scheme_mutex;
  std::vector<SchemeDetector> detectors KV_GUARDED_BY(scheme_mutex);  // by worker
  CostWeights weights;
  RoundRobin round_robin;
  std::vector<WorkerLoad> loads;
  std::unordered_map<int64_t, Booking> bookings;
  std::unique_ptr<Subscriber> subscriber;  // destroyed first: its thread uses the other members
};

Status DemoRouter::Impl::AddDetectors(const CacheOptions& options, size_t engines) {
  SchemeDetectorConfig config;
  config.algorithm = ParseHashAlgorithm(options.hash_algorithm);
  config.seed = options.hash_seed.empty() ? std::string(kDefaultHashSeed) : options.hash_seed;
  config.hash_block_size = cache.hash_block_size;
  const MutexLock lock(scheme_mutex);
  for (size_t i = 0; i < engines; ++i) {
    auto detector = SchemeDetector::Create(config);
    if (!detector.ok()) return detector.status();
    detectors.push_back(std::move(detector).value());
  }
  return {};
}

void DemoRouter::Impl::OnBatch(WorkerId worker, Seq seq, std::span<const uint8_t> payload) {
  auto batch = std::make_shared<EventBatch>();
  // An unreadable batch is missing in the audit, so the audit cannot report the run as exact.
  if (!readers[worker.value]->Read(payload, *batch)) return;
  {
    const MutexLock lock(scheme_mutex);
    detectors[worker.value].Observe(*batch);
  }
  index.Apply(worker, *batch);
  {
    const MutexLock lock(speculative_mutex);
    speculative.Confirm(worker, *batch);
  }
  audit.OnBatch(worker.value, seq.value, std::move(batch));
}

std::vector<WorkerMatch> DemoRouter::Impl::Matches(const PromptNames& names,
                                                   int64_t prompt_tokens) const {
  const auto match_policy =
      policy == RoutingPolicy::kFullOnly ? MatchPolicy::kFullOnly : MatchPolicy::kExact;
  std::vector<WorkerMatch> matches;
  PromptBlocks prompt = {.unit = cache.hash_block_size, .prompt_tokens = prompt_tokens};
  if (!by_chain.empty()) {
    prompt.hashes = *names.chain;
    matches = index.Match(prompt, by_chain, match_policy);
  }
  if (by_content.empty()) return matches;
  prompt.hashes = {};
  prompt.contents = *names.contents;
  const auto more = index.Match(prompt, by_content, match_policy);
  matches.insert(matches.end(), more.begin(), more.end());
  return matches;
}

std::vector<Candidate> DemoRouter::Impl::Candidates(const PromptNames& names, int64_t prompt_tokens,
                                                    int64_t now_ms) {
  const std::span<const BlockHash> chain = *names.chain;
  std::vector<Candidate> candidates;
  const MutexLock lock(speculative_mutex);
  for (const WorkerMatch& match : Matches(names, prompt_tokens)) {
    candidates.push_back({.worker = match.worker,
                          .reusable_tokens = match.gpu_tokens,
                          .with_cpu_tokens = match.with_cpu_tokens,
                          .speculative_tokens =
                              speculative.Match(match.worker, chain, cache.hash_block_size, now_ms),
                          .resident_tokens = LongestOfAnyGroup(match),
                          .load = loads[match.worker.value]});
  }
  return candidates;
}

void DemoRouter::Impl::Book(int64_t number, size_t engine, int64_t prompt_tokens,
                            int64_t reusable_tokens) {
  const Booking booking = {.engine = engine,
                           .prefill_tokens = prompt_tokens - reusable_tokens,
                           .decode_blocks = CeilDiv(prompt_tokens, cache.scheduler_block_size)};
  loads[engine].active_prefill_tokens += booking.prefill_tokens;
  bookings.emplace(number, booking);
}

DemoRouter::DemoRouter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DemoRouter::~DemoRouter() = default;

Result<std::unique_ptr<DemoRouter>> DemoRouter::Create(const DemoOptions& options,
                                                       const std::vector<EngineEndpoints>& engines,
                                                       const std::vector<PeerDialect>& dialects,
                                                       RoutingPolicy policy,
                                                       ExactnessAudit& audit) {
  auto cache = MakeCacheConfig(options.cache);
  if (!cache.ok()) return cache.status();
  auto hasher = MakeHasher(options.cache.hash_algorithm, options.cache.hash_seed);
  if (!hasher.ok()) return hasher.status();
  auto form = MakeHashForm(options.cache);
  if (!form.ok()) return form.status();
  auto impl = std::make_unique<Impl>(policy, *cache, std::move(hasher).value(), *form, audit);
  impl->weights = WeightsFor(options.cache);
  impl->loads.resize(engines.size());
  if (const Status made = impl->AddDetectors(options.cache, engines.size()); !made.ok()) {
    return made;
  }

  auto subscriber = Subscriber::Create({});
  if (!subscriber.ok()) return subscriber.status();
  impl->subscriber = std::move(subscriber).value();
  for (size_t i = 0; i < engines.size(); ++i) {
    const PeerDialect& dialect = dialects[i % dialects.size()];
    impl->readers.push_back(MakePeerReader(dialect, *cache));
    (dialect.of_engine() ? impl->by_chain : impl->by_content).push_back(Worker(i));
  }
  for (size_t i = 0; i < engines.size(); ++i) {
    const WorkerConfig config = MakeWorkerConfig(options.cache, *cache, engines[i].name);
    if (const Status added = impl->index.AddWorker(Worker(i), config); !added.ok()) return added;
    const SourceConfig source = {.worker = Worker(i),
                                 .endpoint = engines[i].endpoint,
                                 .replay_endpoint = engines[i].replay_endpoint};
    auto sink = std::make_shared<BatchSink>(
        [raw = impl.get(), i](Seq seq, std::span<const uint8_t> payload) {
          raw->OnBatch(Worker(i), seq, payload);
        },
        [raw = impl.get(), i](ResetReason) { raw->index.ClearWorker(Worker(i)); });
    const Status added = impl->subscriber->Add(source, std::move(sink));
    if (!added.ok()) return added;
  }
  return std::unique_ptr<DemoRouter>(new DemoRouter(std::move(impl)));
}

DemoRouter::Decision DemoRouter::Route(int64_t number, std::span<const TokenId> prompt,
                                       double now_s, std::optional<size_t> given) {
  const auto tokens = static_cast<int64_t>(prompt.size());
  const auto now_ms = static_cast<int64_t>(now_s * 1000);
  Decision decision;
  decision.names = NamesOf(prompt);
  const auto candidates = impl_->Candidates(decision.names, tokens, now_ms);
  WorkerId chosen;
  if (given) {
    chosen = Worker(*given);
  } else if (impl_->policy == RoutingPolicy::kRoundRobin) {
    chosen = impl_->round_robin.Next(candidates).value_or(WorkerId(0));
  } else if (const auto choice = SelectWorker(candidates, tokens, impl_->weights)) {
    chosen = choice->worker;
  }
  decision.engine = chosen.value;
  for (const Candidate& candidate : candidates) {
    if (candidate.worker == chosen) decision.predicted_tokens = candidate.reusable_tokens;
  }
  impl_->Book(number, decision.engine, tokens, decision.predicted_tokens);
  const MutexLock lock(impl_->speculative_mutex);
  impl_->speculative.Routed(chosen, *decision.names.chain, now_ms);
  return decision;
}

void DemoRouter::OnFirstToken(int64_t number) {
  const auto it = impl_->bookings.find(number);
  if (it == impl_->bookings.end() || it->second.decoding) return;
  WorkerLoad& load = impl_->loads[it->second.engine];
  load.active_prefill_tokens -= it->second.prefill_tokens;
  load.decode_blocks += it->second.decode_blocks;
  it->second.decoding = true;
}

void DemoRouter::OnFinished(int64_t number) {
  OnFirstToken(number);
  const auto it = impl_->bookings.find(number);
  if (it == impl_->bookings.end()) return;
  impl_->loads[it->second.engine].decode_blocks -= it->second.decode_blocks;
  impl_->bookings.erase(it);
}

PromptNames DemoRouter::NamesOf(std::span<const TokenId> tokens) {
  std::vector<Digest> digests;
  impl_->hasher.ExtendChain(tokens, impl_->cache.hash_block_size, HashInputs{}, digests,
                            impl_->cache.chain_form);
  auto chain = std::make_shared<std::vector<BlockHash>>();
  chain->reserve(digests.size());
  for (const Digest& digest : digests) chain->push_back(ToEventHash(digest, impl_->form));
  PromptNames names;
  names.chain = std::move(chain);
  if (!impl_->by_content.empty()) {
    names.contents = std::make_shared<const std::vector<ContentKey>>(PromptContents(
        impl_->index.keys(), tokens, impl_->cache.hash_block_size, /*lookahead=*/0, HashInputs()));
  }
  return names;
}

std::vector<SchemeVerdict> DemoRouter::schemes() const {
  const MutexLock lock(impl_->scheme_mutex);
  std::vector<SchemeVerdict> verdicts;
  for (const SchemeDetector& detector : impl_->detectors) verdicts.push_back(detector.verdict());
  return verdicts;
}

uint64_t DemoRouter::lost_batches() const {
  uint64_t lost = 0;
  for (size_t i = 0; i < impl_->loads.size(); ++i) {
    lost += impl_->subscriber->status(Worker(i)).lost;
  }
  return lost;
}

}  // namespace kvcast::tools
