// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "kvcast/spec/cache_spec.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/json_value.h"
#include "python/src/local_indexer.h"
#include "python/src/overlap_scores.h"
#include "python/src/query_arguments.h"
#include "python/src/values.h"
#include "router/service/api/source_json.h"
#include "src/base/clock.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

using router::WorkerRegistration;

ResetReason ReasonOf(const std::string& name) {
  for (const auto reason :
       {ResetReason::kRestart, ResetReason::kLostBatches, ResetReason::kDoubt}) {
    if (ResetReasonName(reason) == name) return reason;
  }
  ThrowInvalid("reason: must be restart, lost_batches or doubt, not '" + name + "'");
}

// Reads the members as the configuration of the service does.
WorkerRegistration RegistrationOf(const std::string& name, const py::object& worker_id,
                                  int64_t dp_rank, int64_t block_size, const py::dict& members) {
  for (const char* const reserved : {"name", "endpoint", "replay_endpoint", "instance_id",
                                     "data_parallel_rank", "data_parallel_size"}) {
    if (members.contains(reserved)) {
      ThrowInvalid(std::string(reserved) + ": not a member of a source without a stream");
    }
  }
  if (dp_rank < 0) ThrowInvalid("dp_rank: must be at least 0");
  if (name.empty()) ThrowInvalid("source: the name is empty");
  auto json = ToJson(members, "source");
  json["name"] = name;
  json["endpoint"] = "ipc://in-process";  // required by the format, and not used
  json["data_parallel_rank"] = dp_rank;
  if (!worker_id.is_none()) json["instance_id"] = worker_id.cast<std::string>();
  if (block_size > 0 && !json.contains("hash_block_size")) json["hash_block_size"] = block_size;
  WorkerRegistration registration = Take(router::SourceFromJson(json));
  if (registration.format == router::EventFormat::kTrtllm) {
    ThrowInvalid("format: trtllm needs a router service");
  }
  return registration;
}

// The class KvIndexer.
class Indexer {
 public:
  explicit Indexer(std::optional<int64_t> block_size) : block_size_(block_size.value_or(0)) {
    if (block_size && *block_size < 1) ThrowInvalid("block_size: must be at least 1");
  }

  void AddSource(const std::string& name, const py::object& worker_id, int64_t dp_rank,
                 const py::kwargs& members) {
    const auto registration = RegistrationOf(name, worker_id, dp_rank, block_size_, members);
    Check(WithoutGil([&] { return indexer_.Add(registration); }));
  }
  void RemoveSource(const std::string& name) {
    Check(WithoutGil([&] { return indexer_.Remove(name); }));
  }
  LocalApplied Apply(const std::string& name, const py::object& payload,
                     std::optional<uint64_t> seq) {
    const PayloadArgument bytes(payload, "payload");
    if (!indexer_.Has(name)) AddIfAbsent(name);
    return Take(WithoutGil([&] { return indexer_.Apply(name, bytes.bytes(), seq); }));
  }
  void Reset(const std::string& name, const std::string& reason) {
    const ResetReason parsed = ReasonOf(reason);
    Check(WithoutGil([&] { return indexer_.Reset(name, parsed); }));
  }
  OverlapScores Find(const QueryArguments& arguments) const {
    LocalAnswers result = Take(WithoutGil([&] { return indexer_.Find(arguments.query()); }));
    return OverlapScores(std::move(result.answers), std::move(result.keys), block_size_);
  }
  py::dict Status(const std::string& name) const;
  py::list Groups(const std::string& name) const;
  std::vector<std::string> sources() const { return indexer_.names(); }
  void Reclaim() {
    WithoutGil([&] { indexer_.Reclaim(); });
  }
  py::object block_size() const {
    return block_size_ > 0 ? py::object(py::int_(block_size_)) : py::none();
  }
  // Mean nanoseconds of one query in C++. Includes the construction of the Query, and excludes
  // Python objects.
  double TimeOfFind(const QueryArguments& arguments, int64_t repeats) const {
    return WithoutGil([&] {
      const int64_t begin = SteadyNs();
      for (int64_t i = 0; i < repeats; ++i) {
        const router::Query query = arguments.query();
        (void)indexer_.Find(query);
      }
      return static_cast<double>(SteadyNs() - begin) / static_cast<double>(repeats);
    });
  }

 private:
  // kFailedPrecondition: another thread has added the source at the same time.
  void AddIfAbsent(const std::string& name) {
    const auto registration = RegistrationOf(name, py::none(), 0, block_size_, py::dict());
    const auto added = WithoutGil([&] { return indexer_.Add(registration); });
    if (added.code() != StatusCode::kFailedPrecondition) Check(added);
  }

  const int64_t block_size_;
  LocalIndexer indexer_;
};

py::dict Indexer::Status(const std::string& name) const {
  return ToPython(Take(indexer_.status(name)));
}

py::list Indexer::Groups(const std::string& name) const {
  py::list list;
  for (const GroupSpec& group : Take(indexer_.groups(name))) {
    py::dict dict;
    dict["kind"] = std::string(SpecKindName(group.kind));
    dict["block_size"] = group.block_size;
    if (group.sliding_window > 0) dict["sliding_window"] = group.sliding_window;
    if (group.chunk_size > 0) dict["chunk_size"] = group.chunk_size;
    list.append(std::move(dict));
  }
  return list;
}

OverlapScores FindMatches(const Indexer& indexer, const py::object& hashes,
                          const py::object& token_ids, const std::string& model,
                          const std::string& lora_name, const std::string& lora_path,
                          const std::string& cache_salt, const py::object& mm_items,
                          int64_t hash_block_size, int64_t prompt_tokens,
                          const py::object& sources) {
  return indexer.Find({hashes, token_ids, model, lora_name, lora_path, cache_salt, mm_items,
                       hash_block_size, prompt_tokens, sources, "sources"});
}

constexpr char kIndexerDoc[] =
    R"(The prefix index of the kvcast router, in this process and without sockets.

block_size: tokens per block of OverlapScores.scores, and the hash_block_size of sources that do not
    set one. None: each source's own size, which the events show.

Thread-safe. The GIL is released while C++ works. Batches of one source must be applied in order.)";

constexpr char kAddDoc[] =
    R"(Add a source: one worker, which is a data-parallel rank of an engine.

source: a unique name. worker_id: the worker's id in answers; None: the name. dp_rank: its rank.
members: the members of a source in the configuration of the router (docs/options.md): groups,
    model, hash_algorithm, hash_seed, eagle, gpu_blocks, ... Members of streams are refused.

Raises InvalidArgumentError for a wrong member, and StateError if the name or the worker is in
use.)";

constexpr char kApplyDoc[] =
    R"(Apply one batch of a source. An unknown source is added with default members.

payload: bytes or another contiguous buffer: one payload as the engine publishes it.
seq: its sequence number; the engine counts from 0. Without numbers no answer is exact, because a
    lost batch would not be seen.

Returns an ApplyResult. A number that was applied with the same payload is ignored. A number above
the next one means lost batches: the blocks of the source are dropped first, as the router does.
Raises MalformedError if the payload is not a batch, and LimitError if the source has too many
blocks; in both cases, the blocks of the source are dropped. Raises StateError if seq was applied
with other content, or too long ago to compare the content (more than 1,024 batches); the state is
then suspect until reset is called.)";

constexpr char kResetDoc[] =
    R"(Drop the blocks of a source.

reason: "restart" (the engine restarted; the next number is 0), "lost_batches" or "doubt".
After a LimitError the source stays quarantined until a reset with "restart".
Raises NotFoundError for an unknown source, and InvalidArgumentError for another reason.)";

constexpr char kFindDoc[] =
    R"(Find the prefix of a prompt that each worker can reuse.

hashes: the engine's block hashes, shape (n,), n up to 131072. A buffer of uint64 (or of int64
    without negative values) is read in place; other integer buffers and sequences of int or bytes
    are converted. A buffer of uint8, shape (n, bytes), has one digest per row.
token_ids: the tokens of the whole prompt, shape (n,), n from 1 to 2097152. A buffer of int64 is
    read in place. Exactly one of hashes and token_ids is required.
model: only sources of this model. lora_name, lora_path, cache_salt, mm_items: of the request; only
    with token_ids. mm_items: tuples (identifier, offset, length) in tokens.
hash_block_size, prompt_tokens: only with hashes. 0: each worker's own size; the prompt continues
    after the last hash.
sources: names of sources; None: all.

Returns OverlapScores. Thread-safe; do not change a buffer during the call. Raises TypeError for a
wrong type, InvalidArgumentError for a wrong value, and NotFoundError if no source has the model.)";

// pybind11's find_matches, for all forms of the call.
PyObject* any_find_matches = nullptr;

// True: the call has one keyword argument, and the argument has this name.
bool IsOnlyKeyword(PyObject* names, const char* name) {
  if (names == nullptr || PyTuple_GET_SIZE(names) != 1) return false;
  const char* const text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, 0));
  return text != nullptr && std::strcmp(text, name) == 0;
}

// find_matches without pybind11's conversion of arguments, which costs about 0.3 µs. Other calls
// than find_matches(hashes) and find_matches(token_ids=...), and calls that fail, go to pybind11.
PyObject* FindMatchesFast(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                          PyObject* names) {
  try {
    const auto& indexer = py::cast<const Indexer&>(py::handle(self));
    const py::handle prompt = count == 1 || names != nullptr ? arguments[0] : Py_None;
    if (count == 1 && names == nullptr && !prompt.is_none()) {
      return py::cast(indexer.Find(QueryArguments::OfHashes(prompt))).release().ptr();
    }
    if (count == 0 && IsOnlyKeyword(names, "token_ids") && !prompt.is_none()) {
      return py::cast(indexer.Find(QueryArguments::OfTokens(prompt))).release().ptr();
    }
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) {  // for example KeyboardInterrupt
      error.restore();
      return nullptr;
    }
  } catch (...) {
    PyErr_Clear();
  }
  std::vector<PyObject*> all = {self};
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  all.insert(all.end(), arguments, arguments + count + named);
  return PyObject_Vectorcall(any_find_matches, all.data(), static_cast<size_t>(count) + 1, names);
}

template <typename Class>
void ReplaceFindMatches(Class& type) {
  static PyMethodDef method = {"find_matches",
                               reinterpret_cast<PyCFunction>(  // NOLINT: the form of the C API
                                   reinterpret_cast<void (*)()>(&FindMatchesFast)),
                               METH_FASTCALL | METH_KEYWORDS, kFindDoc};
  any_find_matches = py::object(type.attr("find_matches")).release().ptr();
  auto* const made = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &method);
  if (made == nullptr) throw py::error_already_set();
  type.attr("find_matches") = py::reinterpret_steal<py::object>(made);
}

template <typename Class>
void AddQueries(Class& type) {
  type.def("find_matches", &FindMatches, py::arg("hashes") = py::none(), py::kw_only(),
           py::arg("token_ids") = py::none(), py::arg("model") = "", py::arg("lora_name") = "",
           py::arg("lora_path") = "", py::arg("cache_salt") = "", py::arg("mm_items") = py::tuple(),
           py::arg("hash_block_size") = 0, py::arg("prompt_tokens") = 0,
           py::arg("sources") = py::none(), kFindDoc)
      .def(
          "_time_of_find",
          [](const Indexer& indexer, const py::object& hashes, const py::object& token_ids,
             int64_t repeats) {
            const QueryArguments arguments(hashes, token_ids, "", "", "", "", py::tuple(), 0, 0,
                                           py::none());
            return indexer.TimeOfFind(arguments, repeats);
          },
          py::arg("hashes"), py::arg("token_ids"), py::arg("repeats"),
          "For benchmarks: nanoseconds of one query in C++.");
  ReplaceFindMatches(type);
}

}  // namespace

void AddIndexer(py::module_& module) {
  py::class_<LocalApplied>(module, "ApplyResult", "The result of KvIndexer.apply. Immutable.")
      .def_readonly("applied", &LocalApplied::applied, "False: the batch is a duplicate.")
      .def_readonly("seq", &LocalApplied::seq, "The sequence number of the batch.")
      .def_readonly("lost", &LocalApplied::lost, "Number of lost batches before this batch.")
      .def_property_readonly(
          "state",
          [](const LocalApplied& applied) { return std::string(SourceStateName(applied.state)); },
          "The state of the source after the batch: \"synced\", \"cleared\", \"suspect\" or "
          "\"quarantined\" (the source had too many blocks).");
  py::class_<Indexer> type(module, "KvIndexer", kIndexerDoc);
  type.def(py::init<std::optional<int64_t>>(), py::arg("block_size") = py::none())
      .def_property_readonly("block_size", &Indexer::block_size,
                             "Tokens per block of scores, or None.")
      .def_property_readonly("sources", &Indexer::sources, "The names of the sources, as a list.")
      .def("add_source", &Indexer::AddSource, py::arg("source"), py::arg("worker_id") = py::none(),
           py::arg("dp_rank") = 0, kAddDoc)
      .def("remove_source", &Indexer::RemoveSource, py::arg("source"),
           "Remove a source and its blocks. Raises NotFoundError for an unknown source.")
      .def("apply", &Indexer::Apply, py::arg("source"), py::arg("payload"),
           py::arg("seq") = py::none(), kApplyDoc)
      .def("reset", &Indexer::Reset, py::arg("source"), py::arg("reason") = "restart", kResetDoc)
      .def("status", &Indexer::Status, py::arg("source"),
           "Return a dict of the source: state, reason, next_seq, batches, gaps, lost, duplicates, "
           "resets. Raises NotFoundError for an unknown source.")
      .def("groups", &Indexer::Groups, py::arg("source"),
           "Return the known KV-cache groups of a source by group_idx, as a list of dicts with "
           "sizes in tokens. Raises NotFoundError for an unknown source.")
      .def("reclaim", &Indexer::Reclaim,
           "Free the memory of dropped blocks. Makes one or more passes over the index.");
  AddQueries(type);
}

}  // namespace kvcast::python
