// The class EvictionOrder: the eviction policies of the offload manager, for a caller that keeps
// the chunks itself.
// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/src/arguments.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/offload_values.h"
#include "src/offload/manager/arc_policy.h"
#include "src/offload/manager/lru_policy.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

using offload::ChunkEntry;
using offload::ChunkUse;
using offload::kNoChunk;

std::unique_ptr<offload::EvictionPolicy> PolicyFor(const std::string& name, EngineRules rules,
                                                   offload::ChunkTable& table, int64_t capacity) {
  if (rules < EngineRules::kV032) ThrowInvalid("rules: must be v0.32 or v0.33");
  if (PolicyOf(name) == EvictionPolicyKind::kArc) {
    return std::make_unique<offload::ArcPolicy>(table, capacity, true);
  }
  return std::make_unique<offload::RankedLruPolicy>(table, rules >= EngineRules::kV033);
}

// Each chunk counts as one slot, so `capacity` is a number of chunks. The GIL makes each call
// atomic: no call runs Python code between two changes.
class Order {
 public:
  Order(int64_t capacity, const std::string& policy, const std::string& rules)
      : policy_(PolicyFor(policy, RulesOf(rules), table_, capacity)) {
    if (capacity < 0) ThrowInvalid("capacity: must not be negative");
  }

  uint64_t NewRank() { return ++last_rank_; }
  void Insert(const py::object& key, std::optional<uint64_t> rank, int64_t end) {
    const OffloadKey parsed = OffloadKeyOf(key, "key");
    CheckEnd(end);
    const uint32_t chunk = table_.FindOrAdd(parsed, 1);
    ChunkEntry& entry = table_[chunk];
    if (entry.present()) ThrowInvalid("key: the chunk is present");
    entry.readers = ChunkEntry::kStoring;
    entry.rank = rank ? *rank : ++last_rank_;
    entry.end = end;
    policy_->OnReserved(chunk);
  }
  void Remove(const py::object& key) {
    const OffloadKey parsed = OffloadKeyOf(key, "key");
    const uint32_t chunk = Present(parsed);
    if (table_[chunk].readers == 0) policy_->OnLoading(chunk);
    policy_->OnStoreFailed(chunk);
    table_[chunk].readers = ChunkEntry::kAbsent;
    table_.Erase(chunk);
  }
  void SetIdle(const py::object& key, bool idle) {
    const OffloadKey parsed = OffloadKeyOf(key, "key");
    const uint32_t chunk = Present(parsed);
    ChunkEntry& entry = table_[chunk];
    if ((entry.readers == 0) == idle) ThrowInvalid("key: the chunk is in this state");
    entry.readers = idle ? 0 : 1;
    if (idle) {
      policy_->OnIdle(chunk);
    } else {
      policy_->OnLoading(chunk);
    }
  }
  void Access(const py::object& key, uint64_t rank, int64_t end) {
    const OffloadKey parsed = OffloadKeyOf(key, "key");
    CheckEnd(end);
    const uint32_t chunk = table_.Find(parsed);
    if (chunk != kNoChunk && table_[chunk].present()) policy_->OnAccess(chunk, rank, end);
  }
  void StoreMisses(const py::object& keys) {
    const auto parsed = OffloadKeysOf(keys);
    for (const OffloadKey& key : parsed) {
      if (const uint32_t chunk = table_.Find(key); chunk != kNoChunk) policy_->OnStoreMiss(chunk);
    }
  }
  void Charge(const py::object& key, ChunkUse use) {
    const OffloadKey parsed = OffloadKeyOf(key, "key");
    const uint32_t chunk = table_.Find(parsed);
    if (chunk == kNoChunk || !table_[chunk].present()) return;
    policy_->OnRequestFinished(chunk, use, ++last_rank_);
  }
  std::optional<py::list> Evict(int64_t count, const py::object& kept) {
    const auto parsed = OffloadKeysOf(kept);
    if (count < 0) ThrowInvalid("count: must not be negative");
    ++mark_;
    for (const OffloadKey& key : parsed) {
      if (const uint32_t chunk = table_.Find(key); chunk != kNoChunk) table_[chunk].mark = mark_;
    }
    victims_.clear();
    if (!policy_->ChooseVictims(count, mark_, victims_)) return std::nullopt;
    std::vector<OffloadKey> evicted;
    for (const uint32_t chunk : victims_) {
      evicted.push_back(table_[chunk].key);
      table_[chunk].readers = ChunkEntry::kAbsent;
    }
    forgotten_.clear();
    policy_->OnEvicted(victims_, forgotten_);
    for (const uint32_t chunk : forgotten_) table_.Erase(chunk);
    return ToPython(evicted);
  }
  void Clear() {
    policy_->Clear();
    table_.Clear();
  }

 private:
  static void CheckEnd(int64_t end) {
    if (end < 0) ThrowInvalid("end: must not be negative");
  }
  uint32_t Present(const OffloadKey& key) const {
    const uint32_t chunk = table_.Find(key);
    if (chunk == kNoChunk || !table_[chunk].present()) ThrowInvalid("key: there is no such chunk");
    return chunk;
  }

  offload::ChunkTable table_;
  const std::unique_ptr<offload::EvictionPolicy> policy_;
  uint64_t last_rank_ = 0;
  uint64_t mark_ = 0;
  std::vector<uint32_t> victims_;
  std::vector<uint32_t> forgotten_;
};

}  // namespace

void AddEvictionOrder(py::module_& module) {
  py::class_<Order> type(module, "EvictionOrder",
                         R"(Orders the chunks of a host memory tier for their eviction.

It is the eviction policy of OffloadManager, for a caller that keeps the chunks itself. Keys are as
in OffloadManager. capacity: maximum number of chunks. policy: "lru" or "arc". rules: "v0.32" or
"v0.33".

Thread-safe: the calls keep the GIL. Raises InvalidArgumentError.)");
  type.def(py::init<int64_t, const std::string&, const std::string&>(), py::arg("capacity"),
           py::kw_only(), py::arg("policy") = "lru", py::arg("rules") = "v0.33")
      .def("new_rank", &Order::NewRank, "Return a rank that is greater than all earlier ranks.")
      .def("insert", &Order::Insert, py::arg("key"), py::arg("rank") = py::none(),
           py::arg("end") = 0,
           "Add a chunk whose store begins. rank: None: a new rank. end: tokens of the prefix that "
           "ends with the chunk.")
      .def("remove", &Order::Remove, py::arg("key"),
           "Remove a chunk, for example after a failed store.")
      .def("set_idle", &Order::SetIdle, py::arg("key"), py::arg("idle"),
           "True: the chunk may be evicted after this call. False: a load of the chunk begins.")
      .def("access", &Order::Access, py::arg("key"), py::arg("rank"), py::arg("end"),
           "Note the first use of a chunk by a running request with this rank.")
      .def("store_misses", &Order::StoreMisses, py::arg("keys"),
           "Note, in this order, absent chunks that will be stored.")
      .def(
          "charge_offer", [](Order& o, const py::object& k) { o.Charge(k, ChunkUse::kOffered); },
          py::arg("key"), "Note the end of a request that only offered the chunk.")
      .def(
          "charge_store", [](Order& o, const py::object& k) { o.Charge(k, ChunkUse::kStored); },
          py::arg("key"), "Note the end of a request that stored the chunk.")
      .def(
          "charge_reuse", [](Order& o, const py::object& k) { o.Charge(k, ChunkUse::kReused); },
          py::arg("key"), "Note the end of a request that reused the chunk.")
      .def("evict", &Order::Evict, py::arg("count"), py::arg("kept") = py::tuple(),
           "Remove `count` idle chunks that are not in `kept`, and return their keys in order. "
           "Return None, without any change, if there are too few.")
      .def("clear", &Order::Clear, "Remove all chunks.");
}

}  // namespace kvcast::python
