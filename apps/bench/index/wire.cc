// SPDX-License-Identifier: Apache-2.0
#include "kvcast/wire/wire.h"

#include <memory>
#include <msgpack.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench/index/commands.h"
#include "apps/bench/index/fleet.h"
#include "apps/bench/index/floor_map.h"
#include "apps/bench/index/options.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/samples.h"

namespace kvcast::bench {
namespace {

constexpr double kWireTarget = 5;
constexpr uint64_t kTurnsOfSlice = 16;
// The options of the decoder: it reads token ids, and merges adjacent removes.
constexpr DecodeOptions kDecodeOptions{.merge_removes = true};

constexpr char kWireMethod[] =
    "The time from the bytes of a batch to the index: DecodeBatch and PrefixIndex::Apply. The\n"
    "baseline unpacks the same bytes into objects with msgpack-cxx, walks over the objects, and\n"
    "makes the same inserts and erases in absl::flat_hash_map<uint64,uint64>. Both sides run in\n"
    "one thread and alternate in slices of 16 turns of the workload of \"bench apply\". A\n"
    "batch has one event per removed block, blocks of 16 tokens, and token ids below 151,936.\n"
    "Each payload is encoded shortly before it is read, so it is in the CPU caches. The\n"
    "encoding is not measured. The ratio is the time of the baseline divided by the time of "
    "kvcast, as the\n"
    "median of the slices.";

// The times of one slice, in nanoseconds per block operation.
struct Slice {
  double decode = 0;
  double apply = 0;
  double unpack = 0;
  double map = 0;
};

// The baseline's reader of a batch. It finds the tag and the hashes of each event.
class ObjectWalk {
 public:
  // Replaces `ops` by the operations of the batch. False: the batch has an unexpected form.
  bool Read(const msgpack::object& batch, uint32_t worker, std::vector<FloorMap::Op>& ops) {
    ops.clear();
    if (batch.type != msgpack::type::ARRAY || batch.via.array.size < 2) return false;
    const msgpack::object& events = batch.via.array.ptr[1];
    if (events.type != msgpack::type::ARRAY) return false;
    for (uint32_t i = 0; i < events.via.array.size; ++i) {
      if (!ReadEvent(events.via.array.ptr[i], worker, ops)) return false;
    }
    return true;
  }

 private:
  static std::string_view TextOf(const msgpack::object& object) {
    if (object.type != msgpack::type::STR) return {};
    return {object.via.str.ptr, object.via.str.size};
  }
  bool ReadEvent(const msgpack::object& event, uint32_t worker, std::vector<FloorMap::Op>& ops) {
    std::string_view tag;
    const msgpack::object* hashes = nullptr;
    if (event.type == msgpack::type::ARRAY && event.via.array.size >= 2) {
      tag = TextOf(event.via.array.ptr[0]);
      hashes = &event.via.array.ptr[1];
    } else if (event.type == msgpack::type::MAP) {
      for (uint32_t i = 0; i < event.via.map.size; ++i) {
        const msgpack::object_kv& pair = event.via.map.ptr[i];
        const std::string_view key = TextOf(pair.key);
        if (key == "type") tag = TextOf(pair.val);
        if (key == "block_hashes") hashes = &pair.val;
        if (!tag.empty() && hashes != nullptr) break;
      }
    }
    if (hashes == nullptr || hashes->type != msgpack::type::ARRAY) return false;
    const bool erase = tag == "BlockRemoved";
    if (!erase && tag != "BlockStored") return false;
    for (uint32_t i = 0; i < hashes->via.array.size; ++i) {
      const uint64_t hash = hashes->via.array.ptr[i].via.u64;
      ops.push_back({FloorMap::KeyOf({hash, worker, 0, erase}), erase});
    }
    return true;
  }
};

class WireCase {
 public:
  explicit WireCase(const ChurnConfig& config) : churn_(config), batches_(churn_, Removes::kEach) {}

  Status Fill() {
    if (Status status = AddFleet(churn_.config(), index_); !status.ok()) return status;
    FillIndex(churn_, index_);
    std::vector<ResidencyOp> ops;
    for (; turn_ < churn_.steady_turn(); ++turn_) {
      ops.clear();
      batches_.AppendOps(churn_.At(turn_), ops);
      FloorMap::Translate(ops, ops_);
      map_.Apply(ops_);
    }
    return CheckFleet(churn_, index_);
  }

  Result<Slice> Run(Dialect dialect, bool ours_first) {
    Slice slice;
    Status status;
    if (ours_first) status = RunOurs(dialect, slice);
    if (status.ok()) status = RunRival(dialect, slice);
    if (status.ok() && !ours_first) status = RunOurs(dialect, slice);
    if (!status.ok()) return status;
    turn_ += kTurnsOfSlice;
    return slice;
  }
  Status Check() const { return CheckFleet(churn_, index_); }
  double bytes_per_op() const { return static_cast<double>(bytes_) / static_cast<double>(coded_); }

 private:
  // Encodes the batches of the turn, with token ids.
  Status Encode(uint64_t number, Dialect dialect) {
    const Churn::Turn turn = churn_.At(number);
    payloads_.clear();
    for (EventBatch& batch : batches_.Make(turn)) {
      if (Status status = EncodeBatch(batch, dialect, payloads_.emplace_back()); !status.ok()) {
        return status;
      }
      bytes_ += payloads_.back().size();
    }
    coded_ += batches_.ops(turn);
    return {};
  }

  Status RunOurs(Dialect dialect, Slice& slice) {
    int64_t ops = 0;
    for (uint64_t i = 0; i < kTurnsOfSlice; ++i) {
      if (Status status = Encode(turn_ + i, dialect); !status.ok()) return status;
      const Churn::Turn turn = churn_.At(turn_ + i);
      for (const std::vector<uint8_t>& payload : payloads_) {
        DecodeCounts counts;
        const auto start = Clock::now();
        const Status status = DecodeBatch(payload, WireLimits(), kDecodeOptions, decoded_, counts);
        const auto half = Clock::now();
        index_.Apply(turn.worker, decoded_);
        slice.apply += NanosecondsSince(half);
        slice.decode += std::chrono::duration<double, std::nano>(half - start).count();
        if (!status.ok()) return status;
      }
      ops += batches_.ops(turn);
    }
    slice.decode /= static_cast<double>(ops);
    slice.apply /= static_cast<double>(ops);
    return {};
  }
  Status RunRival(Dialect dialect, Slice& slice) {
    int64_t ops = 0;
    for (uint64_t i = 0; i < kTurnsOfSlice; ++i) {
      if (Status status = Encode(turn_ + i, dialect); !status.ok()) return status;
      const Churn::Turn turn = churn_.At(turn_ + i);
      for (const std::vector<uint8_t>& payload : payloads_) {
        const auto start = Clock::now();
        const msgpack::object_handle handle =
            msgpack::unpack(reinterpret_cast<const char*>(payload.data()), payload.size());
        const auto half = Clock::now();
        const bool read = ObjectWalk().Read(handle.get(), turn.worker.value, ops_);
        map_.Apply(ops_);
        slice.map += NanosecondsSince(half);
        slice.unpack += std::chrono::duration<double, std::nano>(half - start).count();
        if (!read) return {StatusCode::kInternal, "the baseline cannot read the batch"};
      }
      ops += batches_.ops(turn);
    }
    slice.unpack /= static_cast<double>(ops);
    slice.map /= static_cast<double>(ops);
    return {};
  }

  const Churn churn_;
  TurnBatches batches_;
  uint64_t turn_ = 0;
  PrefixIndex index_;
  FloorMap map_;
  std::vector<std::vector<uint8_t>> payloads_;
  EventBatch decoded_;
  std::vector<FloorMap::Op> ops_;
  uint64_t bytes_ = 0;
  int64_t coded_ = 0;
};

Status RunDialect(WireCase& fleet, Dialect dialect, const WireBenchOptions& options,
                  Report& report) {
  Samples ratio;
  Samples decode;
  Samples apply;
  Samples unpack;
  Samples map;
  for (int64_t i = 0; i < options.slices; ++i) {
    const auto slice = fleet.Run(dialect, i % 2 == 0);
    if (!slice.ok()) return slice.status();
    ratio.Add((slice->unpack + slice->map) / (slice->decode + slice->apply));
    decode.Add(slice->decode);
    apply.Add(slice->apply);
    unpack.Add(slice->unpack);
    map.Add(slice->map);
  }
  const std::string name = "wire." + std::string(DialectName(dialect));
  report.Target(name, ratio.median(), "x", kWireTarget, Bound::kAtLeast);
  report.Figure(name + ".p10", ratio.Quantile(0.1), "x");
  report.Figure(name + ".p90", ratio.Quantile(0.9), "x");
  report.Figure(name + ".decode", decode.median(), "ns/op");
  report.Figure(name + ".apply", apply.median(), "ns/op");
  report.Figure(name + ".rival_unpack", unpack.median(), "ns/op");
  report.Figure(name + ".rival_map", map.median(), "ns/op");
  return {};
}

}  // namespace

int RunWireBench(const WireBenchOptions& options) {
  Report report("wire", kWireMethod, options.fleet.json);
  ChurnConfig config = FleetCases(options.fleet, {1}).front();
  config.groups = 1;
  const auto fleet = std::make_unique<WireCase>(config);
  if (Status status = fleet->Fill(); !status.ok()) return tools::Fail(status);
  for (const Dialect dialect : {Dialect::kVllm10, Dialect::kVllm8}) {
    if (Status status = RunDialect(*fleet, dialect, options, report); !status.ok()) {
      return tools::Fail(status);
    }
  }
  report.Figure("wire.bytes", fleet->bytes_per_op(), "bytes/op");
  if (Status status = fleet->Check(); !status.ok()) return tools::Fail(status);
  return report.Finish();
}

}  // namespace kvcast::bench
