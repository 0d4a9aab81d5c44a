// SPDX-License-Identifier: Apache-2.0
#include "kvcast/offload/offload_manager.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <utility>

#include "python/src/arguments.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/offload_values.h"
#include "src/base/mutex.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

const char* NameOf(LookupResult result) {
  switch (result) {
    case LookupResult::kHit:
      return "hit";
    case LookupResult::kPending:
      return "pending";
    case LookupResult::kRetry:
      return "retry";
    case LookupResult::kMiss:
      break;
  }
  return "miss";
}

const char* NameOf(OffloadEvent::Kind kind) {
  switch (kind) {
    case OffloadEvent::Kind::kStored:
      return "stored";
    case OffloadEvent::Kind::kRemoved:
      return "removed";
    case OffloadEvent::Kind::kCleared:
      break;
  }
  return "cleared";
}

// The request of a store or load. `ends`: by key, the tokens of the prefix that ends with the
// chunk.
struct Use {
  Use(uint64_t request, const py::object& object)
      : ends(object.is_none() ? std::vector<TokenId>() : TokenArgument(object, "ends").Copy()),
        use{OffloadRequestId(request), ends} {}
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  std::vector<int64_t> ends;
  OffloadUse use;
};

// Without a limit, a caller that never takes statistics would use more and more memory.
constexpr size_t kMaxAllocationSizes = 65536;

// The class OffloadManager. A lock orders the calls of several threads.
class Manager {
 private:
  template <typename Work>
  auto Run(Work&& work) {
    return WithoutGil([&] {
      const MutexLock lock(mutex_);
      return work(*manager_);
    });
  }

 public:
  explicit Manager(const OffloadConfig& config) : manager_(Take(OffloadManager::Create(config))) {}

  std::string Lookup(const py::object& key, uint64_t request) {
    const OffloadKey parsed = OffloadKeyOf(key, "key");
    return NameOf(
        Run([&](OffloadManager& m) { return m.Lookup(parsed, OffloadRequestId(request)); }));
  }
  py::list PrepareLoad(const py::object& keys, uint64_t request, const py::object& ends) {
    const auto parsed = OffloadKeysOf(keys);
    const Use use(request, ends);
    std::vector<SlotId> slots;
    Check(Run([&](OffloadManager& m) { return m.PrepareLoad(parsed, slots, use.use); }));
    return ToPython(slots);
  }
  void CompleteLoad(const py::object& keys) {
    const auto parsed = OffloadKeysOf(keys);
    Check(Run([&](OffloadManager& m) { return m.CompleteLoad(parsed); }));
  }
  void Touch(const py::object& keys) {
    const auto parsed = OffloadKeysOf(keys);
    Run([&](OffloadManager& m) {
      m.Touch(parsed);
      return true;
    });
  }
  py::dict PrepareStore(const py::object& keys, uint64_t request, const py::object& ends) {
    const auto parsed = OffloadKeysOf(keys);
    const Use use(request, ends);
    StorePlan plan;
    Check(Run([&](OffloadManager& m) {
      const Status status = m.PrepareStore(parsed, plan, use.use);
      if (plan.chunks_to_store > 0 && allocation_sizes_.size() < kMaxAllocationSizes) {
        allocation_sizes_.push_back(plan.chunks_to_store);
      }
      return status;
    }));
    py::dict dict;
    dict["keys"] = ToPython(plan.keys);
    dict["slots"] = ToPython(plan.slots);
    dict["evicted"] = ToPython(plan.evicted);
    return dict;
  }
  void CompleteStore(const py::object& keys, bool success) {
    const auto parsed = OffloadKeysOf(keys);
    Run([&](OffloadManager& m) {
      m.CompleteStore(parsed, success);
      return true;
    });
  }
  void FinishRequest(uint64_t request) {
    Run([&](OffloadManager& m) {
      m.FinishRequest(OffloadRequestId(request));
      return true;
    });
  }
  void Reset() {
    Run([](OffloadManager& m) {
      m.Reset();
      return true;
    });
  }
  py::list TakeEvents() {
    py::list list;
    for (const OffloadEvent& event : Run([](OffloadManager& m) { return m.TakeEvents(); })) {
      list.append(py::make_tuple(NameOf(event.kind), ToPython(event.keys)));
    }
    return list;
  }
  py::dict TakeStats() {
    std::vector<int64_t> sizes;
    py::dict dict = ToPython(Run([&](OffloadManager& m) {
      sizes = std::exchange(allocation_sizes_, {});
      return m.TakeStats();
    }));
    dict["allocation_sizes"] = sizes;
    return dict;
  }
  int64_t SlotsPerChunk(int64_t group) {
    return Run([&](OffloadManager& m) -> int64_t {
      const bool exists = group >= 0 && group < std::ssize(m.config().chunk_bytes);
      return exists ? m.slots_per_chunk(GroupIdx(static_cast<uint32_t>(group))) : -1;
    });
  }
  int64_t slot_bytes() {
    return Run([](OffloadManager& m) { return m.slot_bytes(); });
  }
  int64_t num_slots() {
    return Run([](OffloadManager& m) { return m.num_slots(); });
  }
  int64_t num_chunks() {
    return Run([](OffloadManager& m) { return m.num_chunks(); });
  }

 private:
  Mutex mutex_;
  const std::unique_ptr<OffloadManager> manager_;
  std::vector<int64_t> allocation_sizes_;  // since the last TakeStats
};

std::unique_ptr<Manager> MakeManager(int64_t capacity_bytes, std::vector<int64_t> chunk_bytes,
                                     const std::string& policy, int64_t page_bytes,
                                     int64_t slot_bytes, int64_t evict_ahead_bytes,
                                     int64_t store_threshold, int64_t max_tracker_size,
                                     bool enable_events, const std::string& medium,
                                     const std::string& rules, bool compatible) {
  OffloadConfig config;
  config.capacity_bytes = capacity_bytes;
  config.chunk_bytes = std::move(chunk_bytes);
  config.policy = PolicyOf(policy);
  config.page_bytes = page_bytes;
  config.slot_bytes = slot_bytes;
  config.evict_ahead_bytes = evict_ahead_bytes;
  config.store_threshold = store_threshold;
  config.max_tracker_size = max_tracker_size;
  config.enable_events = enable_events;
  config.medium = medium;
  config.rules = RulesOf(rules);
  config.compatible = compatible;
  return std::make_unique<Manager>(config);
}

constexpr char kManagerDoc[] =
    R"(Records the chunks that the host memory tier holds, and their slots. It copies no bytes.

The rules are those of vLLM's CPU offloading manager. A key is bytes: the block hash (1 to 32
bytes), then the KV-cache group as 4 bytes, big-endian.

capacity_bytes: size of the host memory. chunk_bytes: bytes of one chunk, by group.
policy: "lru" or "arc". page_bytes: slots begin at its multiples; a power of 2.
slot_bytes: 0: the greatest common divisor of the chunk sizes, in pages.
evict_ahead_bytes: additional bytes to evict whenever an eviction is necessary.
store_threshold: requests that must look up (or, from rules "v0.32" on, offer) a chunk before it is
stored. max_tracker_size: maximum number of keys with a count for store_threshold.
enable_events: False: take_events returns nothing. rules: the vLLM release: "v0.33", "v0.32",
"2026-08", "2026-05" or "v0.21". compatible: True behaves as vLLM's manager in every case.

Thread-safe: a lock orders the calls. Raises InvalidArgumentError for a wrong value.)";

void AddStores(py::class_<Manager>& type) {
  type.def("prepare_store", &Manager::PrepareStore, py::arg("keys"), py::arg("request_id") = 0,
           py::arg("ends") = py::none(),
           R"(Reserve slots for the keys that are absent, and evict chunks if necessary.

ends: by key, tokens of the prefix that ends with the chunk; required from rules "v0.32" on.
Returns a dict of "keys" (to store), "slots" (slots_per_chunk for each key) and "evicted" (keys).
Raises ExhaustedError if not enough chunks can be evicted, and InvalidArgumentError.)")
      .def("complete_store", &Manager::CompleteStore, py::arg("keys"), py::arg("success") = true,
           "End the store of reserved chunks. False: the chunks become absent. Other keys are "
           "ignored.");
}

void AddLoads(py::class_<Manager>& type) {
  type.def("lookup", &Manager::Lookup, py::arg("key"), py::arg("request_id") = 0,
           "Return the state of a chunk: \"miss\", \"hit\", \"pending\" or \"retry\".")
      .def("prepare_load", &Manager::PrepareLoad, py::arg("keys"), py::arg("request_id") = 0,
           py::arg("ends") = py::none(),
           "Add a reader to every chunk, and return the slots of the chunks. Raises StateError, "
           "without any change, if a chunk is not readable.")
      .def("complete_load", &Manager::CompleteLoad, py::arg("keys"),
           "Remove one reader from every chunk. Raises StateError, without any change, if a chunk "
           "has no reader.")
      .def("touch", &Manager::Touch, py::arg("keys"),
           "Before rules \"v0.32\": the chunks become the most recent. Else no effect.");
}

}  // namespace

void AddOffloadManager(py::module_& module) {
  py::class_<Manager> type(module, "OffloadManager", kManagerDoc);
  type.def(py::init(&MakeManager), py::arg("capacity_bytes"), py::arg("chunk_bytes"), py::kw_only(),
           py::arg("policy") = "lru", py::arg("page_bytes") = 4096, py::arg("slot_bytes") = 0,
           py::arg("evict_ahead_bytes") = 0, py::arg("store_threshold") = 0,
           py::arg("max_tracker_size") = 64000, py::arg("enable_events") = true,
           py::arg("medium") = kMediumCpu, py::arg("rules") = "2026-08",
           py::arg("compatible") = false);
  AddStores(type);
  AddLoads(type);
  type.def("finish_request", &Manager::FinishRequest, py::arg("request_id"),
           "Apply the uses of a request to the age of its chunks. Call it once per request.")
      .def("reset", &Manager::Reset, "Remove all chunks. Copies in progress must have ended.")
      .def("take_events", &Manager::TakeEvents,
           "Return the changes since the last call: tuples (\"stored\", \"removed\" or "
           "\"cleared\", keys).")
      .def("take_stats", &Manager::TakeStats,
           "Return a dict: usage, write_usage, read_usage (shares of the capacity), and since the "
           "last call stores_skipped and allocation_sizes. allocation_sizes is a list: for each "
           "prepare_store with keys to store, their number. It has at most 65,536 elements.")
      .def(
          "slots_per_chunk",
          [](Manager& manager, int64_t group) {
            const int64_t slots = manager.SlotsPerChunk(group);
            if (slots < 0) ThrowInvalid("group: there is no group " + std::to_string(group));
            return slots;
          },
          py::arg("group"), "Return the number of slots of one chunk of the group.")
      .def_property_readonly("slot_bytes", &Manager::slot_bytes, "Bytes per slot.")
      .def_property_readonly("num_slots", &Manager::num_slots, "Number of slots.")
      .def_property_readonly("num_chunks", &Manager::num_chunks, "Number of chunks in any state.");
}

}  // namespace kvcast::python
