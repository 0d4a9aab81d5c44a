// SPDX-License-Identifier: Apache-2.0
#include "python/src/overlap_scores.h"

#include <pybind11/stl.h>

#include "kvcast/stream/subscriber.h"
#include "python/src/bindings.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

using router::QueryAnswer;

py::object AgeOf(const QueryAnswer& answer) {
  if (!answer.event_age_seconds) return py::none();
  return py::float_(*answer.event_age_seconds * 1e3);
}

py::list GroupRows(const QueryAnswer& answer) {
  py::list list;
  for (const int64_t tokens : std::span<const int64_t>(answer.match.per_group_tokens)) {
    list.append(py::int_(tokens));
  }
  return list;
}

py::dict TiersOf(const QueryAnswer& answer) {
  py::dict tiers;
  tiers["GPU"] = answer.match.gpu_tokens;
  tiers["CPU"] = answer.match.with_cpu_tokens;
  tiers["STORAGE"] = answer.match.with_storage_tokens;
  return tiers;
}

template <typename Class, typename Read>
void AddMap(Class& type, const char* name, Read read, const char* doc) {
  type.def_property_readonly(
      name, [read](const OverlapScores& scores) { return scores.ByWorker(read); }, doc);
}

constexpr char kScoresDoc[] =
    R"(The prefix of one prompt that each worker can reuse. Immutable.

Each property is a new dict with the key (worker_id, dp_rank). All lengths are in tokens, except
those of `scores`. Workers that can reuse nothing are in every dict except `scores`.)";

}  // namespace

py::dict OverlapScores::Scores() const {
  py::dict scores;
  for (size_t i = 0; i < answers_.size(); ++i) {
    const int64_t block = block_size_ > 0 ? block_size_ : answers_[i].hash_block_size;
    const int64_t blocks = block > 0 ? answers_[i].match.gpu_tokens / block : 0;
    if (blocks > 0) scores[KeyOf(i)] = blocks;
  }
  return scores;
}

std::string OverlapScores::Repr() const {
  return "<kvcast.OverlapScores " + py::repr(Scores()).cast<std::string>() + ">";
}

void AddOverlapScores(py::module_& module) {
  py::class_<OverlapScores> type(module, "OverlapScores", kScoresDoc);
  type.def_property_readonly("scores", &OverlapScores::Scores,
                             "Whole blocks that the worker can reuse on the GPU, if at least 1. A "
                             "block has KvIndexer.block_size tokens, or the worker's own size.");
  AddMap(
      type, "tokens", [](const QueryAnswer& a) { return py::int_(a.match.gpu_tokens); },
      "Tokens that the worker can reuse on the GPU: the engine's own prefix lookup.");
  AddMap(
      type, "with_cpu", [](const QueryAnswer& a) { return py::int_(a.match.with_cpu_tokens); },
      "Tokens that the worker can reuse after loads from host memory.");
  AddMap(type, "by_tier", TiersOf,
         "A dict per worker: tokens on the GPU, with CPU, and with CPU and STORAGE.");
  AddMap(type, "by_group", GroupRows,
         "A list per worker, by group_idx: tokens that the group could serve without the others.");
  AddMap(
      type, "limited_by", [](const QueryAnswer& a) { return py::cast(a.match.limiting_group); },
      "The group_idx of the limiting group, or None.");
  AddMap(
      type, "exact", [](const QueryAnswer& a) { return py::bool_(a.exact); },
      "True: `tokens` provably equals the engine's own lookup after the last applied batch.");
  AddMap(
      type, "exact_with_cpu", [](const QueryAnswer& a) { return py::bool_(a.exact_with_cpu); },
      "True: `with_cpu` is proven in the same way.");
  AddMap(
      type, "reason", [](const QueryAnswer& a) { return py::str(a.reason); },
      "Why `exact` is False; empty if it is True.");
  AddMap(
      type, "reason_with_cpu", [](const QueryAnswer& a) { return py::str(a.reason_with_cpu); },
      "Why `exact_with_cpu` is False although `exact` is True; else empty.");
  AddMap(type, "age_ms", AgeOf,
         "Milliseconds since the time stamp of the worker's last batch, by this machine's clock; "
         "None without a time stamp.");
  AddMap(
      type, "recompute_tokens",
      [](const QueryAnswer& a) { return py::int_(a.match.recompute_tokens); },
      "Tokens of the prompt that the worker must compute.");
  AddMap(
      type, "state", [](const QueryAnswer& a) { return py::str(SourceStateName(a.state).data()); },
      "The state of the worker's stream: \"synced\", \"cleared\", \"suspect\", ...");
  AddMap(
      type, "next_seq", [](const QueryAnswer& a) { return py::int_(a.next_seq); },
      "The sequence number of the next batch. The answer includes all batches below it.");
  AddMap(
      type, "named_by",
      [](const QueryAnswer& a) { return py::str(router::NamedByName(a.named_by).data()); },
      "How the blocks were found: \"content\", \"scheme\" or \"hashes\".");
  type.def("__len__", &OverlapScores::size).def("__repr__", &OverlapScores::Repr);
}

}  // namespace kvcast::python
