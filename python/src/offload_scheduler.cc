// SPDX-License-Identifier: Apache-2.0
#include "kvcast/offload/offload_scheduler.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "python/src/arguments.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/offload_values.h"
#include "python/src/owned_scheduler.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

using BlockTables = std::vector<std::vector<uint32_t>>;
using ScheduledTuple = std::tuple<uint64_t, int64_t, int64_t, bool, BlockTables>;
using TailTuple = std::tuple<uint64_t, uint32_t, uint32_t, int64_t>;
using CompletionTuple = std::tuple<uint64_t, int64_t, bool>;

std::vector<std::vector<BlockId>> BlocksOf(const BlockTables& tables) {
  std::vector<std::vector<BlockId>> blocks;
  for (const auto& table : tables) {
    auto& list = blocks.emplace_back();
    for (const uint32_t block : table) list.emplace_back(block);
  }
  return blocks;
}

template <typename Id>
py::list ToList(const std::vector<Id>& ids) {
  py::list list;
  for (const Id id : ids) list.append(py::int_(id.value));
  return list;
}

py::dict ToPython(const OffloadJob& job) {
  py::dict dict;
  dict["job_id"] = job.id.value;
  dict["request_id"] = job.request.value;
  dict["gpu_blocks"] = ToList(job.gpu_blocks);
  dict["group_sizes"] = job.group_sizes;
  dict["block_indices"] = job.block_indices;
  dict["slots"] = ToList(job.slots);
  return dict;
}

py::list ToPython(const std::vector<OffloadJob>& jobs) {
  py::list list;
  for (const OffloadJob& job : jobs) list.append(ToPython(job));
  return list;
}

// The class OffloadScheduler. A lock orders the calls of several threads.
class Scheduler {
 private:
  template <typename Work>
  auto Run(Work&& work) {
    return WithoutGil([&] {
      const MutexLock lock(mutex_);
      return work(*owned_);
    });
  }

 public:
  explicit Scheduler(std::unique_ptr<OwnedScheduler> owned) : owned_(std::move(owned)) {}

  void AddRequest(uint64_t id, const py::object& token_ids, const std::string& lora_name,
                  const std::string& cache_salt, std::optional<int64_t> max_offload_tokens,
                  std::optional<int64_t> max_load_tokens) {
    CacheRequest request;
    request.id = std::to_string(id);
    request.tokens = TokenArgument(token_ids, "token_ids").Copy();
    request.prompt_tokens = std::ssize(request.tokens);
    request.hash_inputs.lora_name = lora_name;
    request.hash_inputs.cache_salt = cache_salt;
    for (const auto limit : {max_offload_tokens, max_load_tokens}) {
      if (limit && *limit < 0) ThrowInvalid("max_offload_tokens, max_load_tokens: must be >= 0");
    }
    Check(Run([&](OwnedScheduler& s) {
      return s.Add(id, std::move(request), {max_offload_tokens, max_load_tokens});
    }));
  }
  void AppendTokens(uint64_t id, const py::object& token_ids) {
    const TokenArgument tokens(token_ids, "token_ids");
    Check(Run([&](OwnedScheduler& s) { return s.Append(id, tokens.tokens()); }));
  }
  py::dict MatchedTokens(uint64_t id, int64_t local_tokens, std::optional<int64_t> now_ms) {
    const int64_t now = now_ms.value_or(SteadyMs());
    const OffloadMatch match =
        Take(Run([&](OwnedScheduler& s) { return s.Match(id, local_tokens, now); }));
    py::dict dict;
    dict["tokens"] = match.tokens;
    dict["tail_boundary"] = match.tail_boundary;
    dict["within_step"] = match.within_step;
    return dict;
  }
  void UpdateAfterAlloc(uint64_t id, int64_t external_tokens, const BlockTables& tables) {
    const auto blocks = BlocksOf(tables);
    Check(Run([&](OwnedScheduler& s) { return s.UpdateAfterAlloc(id, external_tokens, blocks); }));
  }
  py::dict BuildStep(const std::vector<ScheduledTuple>& scheduled,
                     const std::vector<uint64_t>& preempted, const std::vector<TailTuple>& tails) {
    OwnedStep step;
    for (const auto& [id, computed, tokens, starts, blocks] : scheduled) {
      step.scheduled.push_back({id, computed, tokens, starts, BlocksOf(blocks)});
    }
    for (const uint64_t id : preempted) step.preempted.emplace_back(id);
    for (const auto& [id, group, block, boundary] : tails) {
      step.tails.push_back({OffloadRequestId(id), GroupIdx(group), BlockId(block), boundary});
    }
    const OffloadPlan plan = Take(Run([&](OwnedScheduler& s) { return s.BuildStep(step); }));
    py::dict dict;
    dict["flush"] = ToList(plan.flush);
    dict["loads"] = ToPython(plan.loads);
    dict["stores"] = ToPython(plan.stores);
    dict["before_step"] = ToList(plan.before_step);
    return dict;
  }
  py::dict OnCompletions(const std::vector<CompletionTuple>& completions) {
    std::vector<OffloadCompletion> parsed;
    for (const auto& [job, workers, success] : completions) {
      parsed.push_back({OffloadJobId(job), workers, success});
    }
    const auto arrivals = Take(Run([&](OwnedScheduler& s) { return s.OnCompletions(parsed); }));
    py::dict dict;
    dict["loaded"] = ToList(arrivals.loaded);
    dict["failed"] = ToList(arrivals.failed);
    dict["released"] = ToList(arrivals.released);
    return dict;
  }
  py::list TakeLateLoads(std::optional<int64_t> now_ms) {
    const int64_t now = now_ms.value_or(SteadyMs());
    std::vector<LateLoad> late;
    Run([&](OwnedScheduler& s) {
      s.scheduler().TakeLateLoads(now, late);
      return true;
    });
    py::list list;
    for (const LateLoad& load : late) {
      list.append(py::make_tuple(load.request.value, load.job.value));
    }
    return list;
  }
  bool RequestFinished(uint64_t id, int64_t computed_tokens, bool aborted) {
    return Take(Run([&](OwnedScheduler& s) { return s.Finish(id, computed_tokens, aborted); }));
  }
  void Reset() {
    Check(Run([](OwnedScheduler& s) { return s.scheduler().Reset(); }));
  }
  py::list TakeEvents() {
    py::list list;
    for (const Event& event : Run([](OwnedScheduler& s) { return s.scheduler().TakeEvents(); })) {
      std::visit([&](const auto& e) { list.append(py::cast(e)); }, event);
    }
    return list;
  }
  py::dict TakeStats() {
    const auto stats = Run([](OwnedScheduler& s) { return s.scheduler().TakeStats(); });
    py::dict dict = python::ToPython(stats.memory);
    dict["allocation_failures"] = stats.allocation_failures;
    dict["failed_stores"] = stats.failed_stores;
    dict["failed_loads"] = stats.failed_loads;
    dict["late_loads"] = stats.late_loads;
    dict["expired_waits"] = stats.expired_waits;
    dict["unknown_completions"] = stats.unknown_completions;
    return dict;
  }
  bool has_pending_work() {
    return Run([](OwnedScheduler& s) { return s.scheduler().has_pending_work(); });
  }
  int64_t num_requests() {
    return Run([](OwnedScheduler& s) { return s.scheduler().num_requests(); });
  }

 private:
  Mutex mutex_;
  const std::unique_ptr<OwnedScheduler> owned_;
};

std::unique_ptr<Scheduler> MakeScheduler(const py::object& groups, int64_t capacity_bytes,
                                         std::vector<int64_t> chunk_bytes, int64_t tokens_per_hash,
                                         int64_t blocks_per_chunk, const std::string& policy,
                                         const std::string& rules, int64_t num_workers,
                                         bool prompt_only, const std::string& algo,
                                         const std::string& seed) {
  OffloadSchedulerConfig config;
  config.layout.groups = GroupsOf(groups);
  config.layout.tokens_per_hash = tokens_per_hash;
  config.layout.blocks_per_chunk = blocks_per_chunk;
  config.memory.capacity_bytes = capacity_bytes;
  config.memory.chunk_bytes = std::move(chunk_bytes);
  config.memory.policy = PolicyOf(policy);
  config.rules = RulesOf(rules);
  config.num_workers = num_workers;
  config.prompt_only = prompt_only;
  const auto algorithm = ParseHashAlgorithm(algo);
  if (!algorithm) ThrowInvalid("algo: unknown algorithm '" + algo + "'");
  return std::make_unique<Scheduler>(std::make_unique<OwnedScheduler>(
      Take(OffloadScheduler::Create(config)), Take(BlockHasher::FromSeed(*algorithm, seed)),
      config.layout.groups.size(), tokens_per_hash, num_workers));
}

constexpr char kSchedulerDoc[] =
    R"(Decides which blocks are copied between the GPU and host memory, and when. It copies no bytes.

It is the scheduler's part of vLLM's offloading connector. Per engine step: matched_tokens and
update_after_alloc for each admitted request, build_step once, on_completions for ended copies.

groups: the KV-cache groups of the engine, as dicts: kind, block_size, sliding_window, ...
capacity_bytes: of the host memory. chunk_bytes: bytes of one chunk, by group.
tokens_per_hash: tokens per block hash. blocks_per_chunk: blocks of a group that move as one chunk.
policy: "lru" or "arc". rules: the vLLM release, as in OffloadManager. num_workers: workers that
report each copy. prompt_only: False also stores sampled tokens. algo, seed: of the block hashes.

Thread-safe: a lock orders the calls. A method with request_id raises NotFoundError for an unknown
request, and InvalidArgumentError for a number out of range; nothing is changed then.)";

void AddRequests(py::class_<Scheduler>& type) {
  type.def("add_request", &Scheduler::AddRequest, py::arg("request_id"), py::arg("token_ids"),
           py::kw_only(), py::arg("lora_name") = "", py::arg("cache_salt") = "",
           py::arg("max_offload_tokens") = py::none(), py::arg("max_load_tokens") = py::none(),
           "Add a request with the tokens of its prompt. Raises StateError if the id is in use.")
      .def("append_tokens", &Scheduler::AppendTokens, py::arg("request_id"), py::arg("token_ids"),
           "Add sampled tokens to a request.")
      .def("matched_tokens", &Scheduler::MatchedTokens, py::arg("request_id"),
           py::arg("local_tokens"), py::arg("now_ms") = py::none(),
           R"(Return how many tokens can be loaded after the first local_tokens tokens, as a dict.

tokens: the number, or None: not known yet, ask again in the next step. tail_boundary: end of the
prefix if it is inside a block, or None. within_step: the load fits into the same step.
now_ms: milliseconds of a clock that does not go back; None: the clock of the process.)")
      .def("update_after_alloc", &Scheduler::UpdateAfterAlloc, py::arg("request_id"),
           py::arg("external_tokens"), py::arg("tables"),
           "The engine has allocated blocks for external_tokens more tokens. tables: a list of "
           "block ids per group. The next build_step returns the load. Raises StateError if a "
           "chunk is not readable or the request has a job.")
      .def("request_finished", &Scheduler::RequestFinished, py::arg("request_id"),
           py::arg("computed_tokens"), py::arg("aborted") = false,
           "The request has ended. computed_tokens: number of leading tokens whose KV exists. "
           "Return True if the request has a running load.");
}

}  // namespace

void AddOffloadScheduler(py::module_& module) {
  py::class_<Scheduler> type(module, "OffloadScheduler", kSchedulerDoc);
  type.def(py::init(&MakeScheduler), py::arg("groups"), py::arg("capacity_bytes"),
           py::arg("chunk_bytes"), py::kw_only(), py::arg("tokens_per_hash") = 16,
           py::arg("blocks_per_chunk") = 1, py::arg("policy") = "lru", py::arg("rules") = "2026-08",
           py::arg("num_workers") = 1, py::arg("prompt_only") = true, py::arg("algo") = "sha256",
           py::arg("seed") = std::string(kDefaultHashSeed));
  AddRequests(type);
  type.def("build_step", &Scheduler::BuildStep,
           py::arg("scheduled") = std::vector<ScheduledTuple>(),
           py::arg("preempted") = std::vector<uint64_t>(),
           py::arg("tails") = std::vector<TailTuple>(),
           R"(End the scheduling of a step, and return its copies as a dict.

scheduled: tuples (request_id, computed_tokens, scheduled_tokens, starts, new_blocks); new_blocks is
    [] or a list of block ids per group. preempted: request ids.
tails: Mamba states, as tuples (request_id, group, block, boundary).

Returns "flush" (job ids that must end before the step), "loads", "stores" (dicts: job_id,
request_id, gpu_blocks, group_sizes, block_indices, slots) and "before_step" (job ids).)")
      .def("on_completions", &Scheduler::OnCompletions, py::arg("completions"),
           "Report ended copies: tuples (job_id, workers, success). Return a dict of request ids: "
           "\"loaded\" and \"failed\", and of job ids: \"released\". Unknown jobs are counted.")
      .def("take_late_loads", &Scheduler::TakeLateLoads, py::arg("now_ms") = py::none(),
           "Return the loads that have become late, as tuples (request_id, job_id).")
      .def("reset", &Scheduler::Reset,
           "Remove all chunks. Raises StateError if loads wait for build_step.")
      .def("take_events", &Scheduler::TakeEvents,
           "Return the events since the last call: BlockStored, BlockRemoved and AllBlocksCleared "
           "objects of the tier CPU, for KvEventPublisher.")
      .def("take_stats", &Scheduler::TakeStats,
           "Return a dict: usage, write_usage, read_usage (shares of the capacity), and counters "
           "since the last call.")
      .def_property_readonly("has_pending_work", &Scheduler::has_pending_work,
                             "True: jobs are in progress; the engine must continue to run steps.")
      .def_property_readonly("num_requests", &Scheduler::num_requests);
}

}  // namespace kvcast::python
