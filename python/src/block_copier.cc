// The class BlockCopier: a TransferEngine over tensors of the caller, with host memory of its own.
// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/internal_pool.h"
#include "kvcast/cuda/cuda_copy_backend.h"
#include "kvcast/transfer/host_copy_backend.h"
#include "kvcast/transfer/host_pool.h"
#include "kvcast/transfer/transfer_engine.h"
#include "python/src/arguments.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/holder.h"
#include "python/src/values.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

constexpr int64_t kMaxSlots = int64_t{1} << 31;
constexpr int64_t kMaxChunkBytes = int64_t{1} << 40;

// A tensor of blocks. `buffer` and `object` keep the memory of the tensor alive.
struct Tensor {
  py::object object;
  Buffer buffer;
  BlockPart part;
  int64_t num_blocks = 0;
};

// The address and the form of a tensor with two dimensions and elements of one byte.
struct TensorForm {
  uintptr_t address = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  int64_t stride = 0;  // bytes from row to row
};

TensorForm FormOfHost(const Buffer& buffer, const std::string& argument) {
  const Py_buffer& view = buffer.view();
  // ctypes arrays give no strides: they are contiguous.
  const bool contiguous = view.strides == nullptr || (view.ndim == 2 && view.strides[1] == 1);
  if (view.ndim != 2 || view.itemsize != 1 || !contiguous) {
    ThrowInvalid(argument + ": must have 2 dimensions, elements of 1 byte and contiguous rows");
  }
  const int64_t stride = view.strides == nullptr ? view.shape[1] : view.strides[0];
  return {reinterpret_cast<uintptr_t>(view.buf), view.shape[0], view.shape[1], stride};
}

TensorForm ReadCudaForm(const py::object& object, const std::string& argument) {
  if (!py::hasattr(object, "__cuda_array_interface__")) {
    ThrowType(argument + ": must have __cuda_array_interface__");
  }
  const auto form = object.attr("__cuda_array_interface__").cast<py::dict>();
  for (const char* const name : {"shape", "typestr", "data"}) {
    if (!form.contains(name)) {
      ThrowInvalid(argument + ": __cuda_array_interface__ has no " + name);
    }
  }
  const auto shape = form["shape"].cast<std::vector<int64_t>>();
  const auto type = form["typestr"].cast<std::string>();
  std::optional<std::vector<int64_t>> strides;
  if (form.contains("strides") && !form["strides"].is_none()) {
    strides = form["strides"].cast<std::vector<int64_t>>();
  }
  if (shape.size() != 2 || type.empty() || type.back() != '1' ||
      (strides && (strides->size() != 2 || strides->back() != 1))) {
    ThrowInvalid(argument + ": must have 2 dimensions, elements of 1 byte and contiguous rows");
  }
  const auto data = form["data"].cast<std::pair<uintptr_t, bool>>();
  if (data.second) ThrowInvalid(argument + ": must be writable");
  return {data.first, shape[0], shape[1], strides ? strides->front() : shape[1]};
}

TensorForm FormOfCuda(const py::object& object, const std::string& argument) {
  try {
    return ReadCudaForm(object, argument);
  } catch (const py::cast_error&) {
    ThrowInvalid(argument + ": has a wrong __cuda_array_interface__");
  }
}

Tensor TensorOf(py::handle item, bool cuda, const std::string& argument) {
  Tensor tensor;
  std::optional<int64_t> copied_bytes;
  if (py::isinstance<py::tuple>(item)) {
    const auto pair = py::reinterpret_borrow<py::tuple>(item);
    if (pair.size() != 2) ThrowInvalid(argument + ": must be a tensor or (tensor, bytes per row)");
    tensor.object = pair[0];
    const auto bytes = IntegerOf(pair[1], argument);
    if (bytes.negative || bytes.magnitude > INT64_MAX) {
      ThrowInvalid(argument + ": the bytes per row must be from 1 to the bytes of a row");
    }
    copied_bytes = static_cast<int64_t>(bytes.magnitude);
  } else {
    tensor.object = py::reinterpret_borrow<py::object>(item);
  }
  if (!cuda && !tensor.buffer.Open(tensor.object, PyBUF_STRIDED | PyBUF_WRITABLE)) {
    ThrowType(argument + ": must be a writable buffer");
  }
  const TensorForm form =
      cuda ? FormOfCuda(tensor.object, argument) : FormOfHost(tensor.buffer, argument);
  const int64_t row_bytes = copied_bytes.value_or(form.row_bytes);
  if (row_bytes < 1 || row_bytes > form.row_bytes || form.stride < form.row_bytes ||
      row_bytes > kMaxChunkBytes) {
    ThrowInvalid(argument + ": the bytes per row must be from 1 to the bytes of a row");
  }
  tensor.num_blocks = form.rows;
  tensor.part.base = reinterpret_cast<std::byte*>(form.address);
  tensor.part.block_stride = static_cast<size_t>(form.stride);
  tensor.part.row_bytes = static_cast<size_t>(row_bytes);
  return tensor;
}

// The data that calls use without the GIL. The engine is destroyed before the pools.
struct Engine {
  std::optional<HostPool> host;
  std::optional<PinnedPool> pinned;
  std::unique_ptr<TransferEngine> engine;
};

struct Options {
  int64_t num_slots = 0;
  int64_t slot_bytes = 0;
  int64_t blocks_per_chunk = 1;
  std::string backend;
  int64_t device = 0;

  bool cuda() const { return backend == "cuda"; }
};

void CheckOptions(const Options& options) {
  if (options.backend != "host" && options.backend != "cuda") {
    ThrowInvalid("backend: must be host or cuda, not '" + options.backend + "'");
  }
  if (options.num_slots < 1 || options.num_slots > kMaxSlots) {
    ThrowInvalid("num_slots: must be from 1 to 2^31");
  }
  if (options.slot_bytes < 1 || options.slot_bytes > (int64_t{1} << 46) / options.num_slots) {
    ThrowInvalid("slot_bytes: must be positive, and all slots together at most 64 TiB");
  }
  if (options.blocks_per_chunk < 1 || options.blocks_per_chunk > 1 << 20) {
    ThrowInvalid("blocks_per_chunk: must be from 1 to 2^20");
  }
  if (options.device < 0 || options.device > 1 << 20) ThrowInvalid("device: there is no such GPU");
}

Result<std::unique_ptr<CopyBackend>> MakeBackend(const Options& options, size_t bytes, Engine& made,
                                                 HostLayout& host) {
  if (!options.cuda()) {
    auto pool = HostPool::Create({.bytes = bytes});
    if (!pool.ok()) return pool.status();
    made.host.emplace(std::move(pool).value());
    host.base = made.host->base();
    return MakeHostCopyBackend();
  }
  auto device = OpenCudaDevice(static_cast<int>(options.device));
  if (!device.ok()) return device.status();
  auto pool = cuda::MakeInternalPool(*device, {.bytes = bytes});
  if (!pool.ok()) return pool.status();
  made.pinned.emplace(std::move(pool).value());
  host.base = made.pinned->base();
  auto backend = CudaCopyBackend::Create(*device, {.host = &*made.pinned});
  if (!backend.ok()) return backend.status();
  return std::unique_ptr<CopyBackend>(std::move(backend).value());
}

Result<std::unique_ptr<Engine>> MakeEngine(std::vector<TransferGroupConfig> groups,
                                           const Options& options) {
  auto made = std::make_unique<Engine>();
  TransferConfig config;
  config.groups = std::move(groups);
  config.host.slot_bytes = static_cast<size_t>(options.slot_bytes);
  config.host.bytes = static_cast<size_t>(options.num_slots) * config.host.slot_bytes;
  if (options.cuda()) {
    config.max_batch_bytes = kCudaBatchBytes;
    config.max_batch_ops = kCudaBatchOps;
  }
  auto backend = MakeBackend(options, config.host.bytes, *made, config.host);
  if (!backend.ok()) return backend.status();
  auto engine = TransferEngine::Create(std::move(config), std::move(backend).value());
  if (!engine.ok()) return engine.status();
  made->engine = std::move(engine).value();
  return made;
}

class Copier {
 public:
  Copier(const py::sequence& groups, const Options& options)
      : blocks_per_chunk_(options.blocks_per_chunk),
        slot_bytes_(options.slot_bytes),
        engine_("BlockCopier", Open(groups, options)) {}

  void Submit(uint64_t job, bool store, const py::object& blocks, const py::object& sizes,
              const py::object& first_blocks, const py::object& slots, uint64_t after) {
    const Lists lists = Read(blocks, sizes, first_blocks, slots);
    TransferJob made;
    made.id = TransferJobId(job);
    made.direction = store ? CopyDirection::kStore : CopyDirection::kLoad;
    made.groups = lists.groups;
    made.after = reinterpret_cast<void*>(static_cast<uintptr_t>(after));
    if (after != 0 && !cuda_) ThrowInvalid("after: the host backend has no events");
    engine_.Call([&](Engine& engine) {
      engine.engine->Submit(made);
      return true;
    });
  }
  py::list Poll() {
    const auto results = engine_.Call([](Engine& engine) {
      std::vector<TransferResult> ended;
      engine.engine->Poll(ended);
      return ended;
    });
    py::list list;
    for (const TransferResult& result : results) {
      py::object error = py::none();
      if (!result.status.ok()) error = py::str(result.status.ToString());
      list.append(py::make_tuple(result.id.value, error));
    }
    return list;
  }
  void Wait(const std::vector<uint64_t>& jobs) {
    std::vector<TransferJobId> ids;
    for (const uint64_t job : jobs) ids.emplace_back(job);
    engine_.Call([&](Engine& engine) {
      engine.engine->Wait(ids);
      return true;
    });
  }
  py::dict Stats() {
    const TransferStats stats = engine_.Call([](Engine& e) { return e.engine->stats(); });
    py::dict dict;
    for (const auto& [name, lane] : {std::pair("loads", stats.loads), {"stores", stats.stores}}) {
      py::dict of_lane;
      of_lane["jobs"] = lane.jobs;
      of_lane["failed_jobs"] = lane.failed_jobs;
      of_lane["blocks"] = lane.blocks;
      of_lane["bytes"] = lane.bytes;
      of_lane["busy_seconds"] = lane.busy_seconds;
      dict[name] = of_lane;
    }
    return dict;
  }
  std::vector<int64_t> block_bytes() const { return block_bytes_; }
  void Close() { engine_.Close(); }
  bool closed() { return engine_.closed(); }

 private:
  // The lists of a job. `groups` borrows the other lists.
  struct Lists {
    std::vector<BlockId> blocks;
    std::vector<SlotId> slots;
    std::vector<TransferGroup> groups;
  };

  std::unique_ptr<Engine> Open(const py::sequence& groups, const Options& options) {
    CheckOptions(options);
    cuda_ = options.cuda();
    std::vector<TransferGroupConfig> configs;
    for (const py::handle group : groups) {
      TransferGroupConfig config;
      config.blocks_per_chunk = static_cast<uint32_t>(options.blocks_per_chunk);
      for (const py::handle item : group) {
        const std::string argument = "groups[" + std::to_string(block_bytes_.size()) + "][" +
                                     std::to_string(config.layout.parts.size()) + "]";
        tensors_.push_back(TensorOf(item, cuda_, argument));
        const Tensor& tensor = tensors_.back();
        if (!config.layout.parts.empty() && config.layout.num_blocks != tensor.num_blocks) {
          ThrowInvalid(argument + ": the tensors of a group must have the same number of blocks");
        }
        config.layout.num_blocks = tensor.num_blocks;
        config.layout.parts.push_back(tensor.part);
      }
      if (config.layout.parts.empty()) {
        engine_groups_.emplace_back();
        block_bytes_.push_back(0);
        continue;
      }
      Check(ValidateLayout(config.layout));
      const auto block_bytes = static_cast<int64_t>(config.layout.block_bytes());
      if (block_bytes > kMaxChunkBytes / options.blocks_per_chunk) {
        ThrowInvalid("blocks_per_chunk: a chunk has more than 1 TiB");
      }
      engine_groups_.emplace_back(static_cast<uint32_t>(configs.size()));
      block_bytes_.push_back(block_bytes);
      configs.push_back(std::move(config));
    }
    if (configs.empty()) ThrowInvalid("groups: no group has tensors");
    return Take(WithoutGil([&] { return MakeEngine(std::move(configs), options); }));
  }

  Lists Read(const py::object& blocks, const py::object& sizes, const py::object& first_blocks,
             const py::object& slots) const {
    const TokenArgument block_ids(blocks, "blocks");
    const TokenArgument slot_ids(slots, "slots");
    Lists lists;
    for (const int64_t id : block_ids.tokens()) {
      if (id > INT32_MAX) ThrowInvalid("blocks: there is no block " + std::to_string(id));
      lists.blocks.emplace_back(static_cast<uint32_t>(id));
    }
    for (const int64_t slot : slot_ids.tokens()) {
      if (slot >= kMaxSlots) ThrowInvalid("slots: there is no slot " + std::to_string(slot));
      lists.slots.emplace_back(static_cast<uint32_t>(slot));
    }
    const TokenArgument group_sizes(sizes, "group_sizes");
    const TokenArgument firsts(first_blocks, "block_indices");
    if (group_sizes.tokens().size() != block_bytes_.size() ||
        firsts.tokens().size() != block_bytes_.size()) {
      ThrowInvalid("group_sizes and block_indices: must have one entry per group");
    }
    Split(group_sizes.tokens(), firsts.tokens(), lists);
    return lists;
  }

  void Split(std::span<const int64_t> sizes, std::span<const int64_t> firsts, Lists& lists) const {
    std::span<const BlockId> blocks = lists.blocks;
    std::span<const SlotId> slots = lists.slots;
    for (size_t group = 0; group < sizes.size(); ++group) {
      const int64_t size = sizes[group];
      if (size == 0) continue;
      const int64_t first = firsts[group] % blocks_per_chunk_;
      const int64_t per_chunk = std::max<int64_t>(
          1, (block_bytes_[group] * blocks_per_chunk_ + slot_bytes_ - 1) / slot_bytes_);
      if (size > std::ssize(blocks))
        ThrowInvalid("group_sizes: the sum exceeds the number of blocks");
      const int64_t chunks = (first + size + blocks_per_chunk_ - 1) / blocks_per_chunk_;
      if (chunks > std::ssize(slots) / per_chunk) ThrowInvalid("slots: there are too few slots");
      const auto count = static_cast<size_t>(chunks * per_chunk);
      if (engine_groups_[group]) {
        lists.groups.push_back({*engine_groups_[group], static_cast<uint32_t>(first),
                                blocks.first(static_cast<size_t>(size)), slots.first(count)});
      }
      blocks = blocks.subspan(static_cast<size_t>(size));
      slots = slots.subspan(count);
    }
    if (!blocks.empty() || !slots.empty()) {
      ThrowInvalid("group_sizes: blocks or slots has more elements than the groups need");
    }
  }

  std::vector<Tensor> tensors_;       // destroyed after engine_, which uses their memory
  std::vector<int64_t> block_bytes_;  // by group
  // The numbers of the groups in the engine; nullopt: the group has no tensors.
  std::vector<std::optional<GroupIdx>> engine_groups_;
  const int64_t blocks_per_chunk_;
  const int64_t slot_bytes_;
  bool cuda_ = false;
  Holder<Engine> engine_;
};

constexpr char kBlockCopierDoc[] =
    R"(Copies KV blocks between tensors of the engine and host memory that this object owns.

groups: by KV-cache group, the tensors of its layers: two dimensions (num_blocks, bytes), elements
of 1 byte, contiguous rows. An item is a tensor, or (tensor, bytes of a row that are copied). A
group without tensors is allowed, because a pipeline stage may have no layer of a group: its blocks
are not copied, and each of its chunks takes one slot.
backend "host": the tensors are writable buffers, for example numpy arrays. backend "cuda": they
have __cuda_array_interface__, and the host memory is pinned. The object keeps the tensors.
num_slots, slot_bytes: the host memory. A chunk of a group has blocks_per_chunk blocks, and takes
ceil(blocks_per_chunk * block_bytes / slot_bytes) slots. device: number of the GPU.

Thread-safe. Raises InvalidArgumentError; ExhaustedError without memory; UnavailableError if there
is no GPU or the package was built without CUDA.)";

}  // namespace

void AddBlockCopier(py::module_& module) {
  py::class_<Copier> type(module, "BlockCopier", kBlockCopierDoc);
  type.def(py::init([](const py::sequence& groups, int64_t num_slots, int64_t slot_bytes,
                       int64_t blocks_per_chunk, const std::string& backend, int64_t device) {
             return std::make_unique<Copier>(
                 groups, Options{num_slots, slot_bytes, blocks_per_chunk, backend, device});
           }),
           py::arg("groups"), py::arg("num_slots"), py::arg("slot_bytes"), py::kw_only(),
           py::arg("blocks_per_chunk") = 1, py::arg("backend") = "host", py::arg("device") = 0)
      .def("submit", &Copier::Submit, py::arg("job_id"), py::arg("store"), py::arg("blocks"),
           py::arg("group_sizes"), py::arg("block_indices"), py::arg("slots"), py::arg("after") = 0,
           R"(Start the copies of a job, and return before they end.

job_id: not the number of a job in progress. store: True: from the tensors to host memory; False: a
load. blocks: block ids, by group; block 0 is not copied. group_sizes: number of blocks by group.
block_indices: by group, the index of its first block in the request. slots: by group, then by
chunk. after: cudaEvent_t as an integer; the copies start after this event. The event must exist,
and must not be recorded again, until the job has ended. A job with a wrong block id or slot fails;
see poll.)")
      .def("poll", &Copier::Poll,
           "Return the jobs that ended since the last call: tuples (job_id, error). error is None "
           "or a text.")
      .def("wait", &Copier::Wait, py::arg("job_ids"),
           "Wait until none of the jobs is in progress. poll returns their results.")
      .def("stats", &Copier::Stats,
           "Return a dict with \"loads\" and \"stores\": dicts of jobs, failed_jobs, blocks, bytes "
           "and busy_seconds since the creation.")
      .def("close", &Copier::Close, "Wait for the copies that have started, and free the memory.")
      .def_property_readonly("block_bytes", &Copier::block_bytes, "Bytes of a block, by group.")
      .def_property_readonly("closed", &Copier::closed, "True after close.");
}

}  // namespace kvcast::python
