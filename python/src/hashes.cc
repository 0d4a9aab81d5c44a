// SPDX-License-Identifier: Apache-2.0
#include "python/src/hashes.h"

#include <utility>

#include "python/src/arguments.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/values.h"
#include "src/base/clock.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

Status Invalid(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

Result<BlockHasher> HasherOf(const HashOptions& options) {
  const auto algorithm = ParseHashAlgorithm(options.algorithm);
  if (!algorithm) {
    return Invalid("algo: must be sha256, sha256_cbor, xxhash or xxhash_cbor, not '" +
                   options.algorithm + "'");
  }
  if (!options.none_hash.empty()) return BlockHasher::FromNoneHash(*algorithm, options.none_hash);
  return BlockHasher::FromSeed(*algorithm, options.seed);
}

py::object Element(const BlockHashes& hashes, size_t i) {
  if (hashes.width == 0) return py::int_(hashes.integers[i]);
  return py::bytes(reinterpret_cast<const char*>(&hashes.digests[i * hashes.width]), hashes.width);
}

py::list ToList(const BlockHashes& hashes) {
  py::list list(hashes.size());
  for (size_t i = 0; i < hashes.size(); ++i) list[i] = Element(hashes, i);
  return list;
}

py::object Item(const BlockHashes& hashes, Py_ssize_t i) {
  const auto size = static_cast<Py_ssize_t>(hashes.size());
  if (i < 0) i += size;
  if (i < 0 || i >= size) throw py::index_error("the index is out of range");
  return Element(hashes, static_cast<size_t>(i));
}

// numpy.asarray and memoryview read the hashes in place.
py::buffer_info BufferOf(BlockHashes& hashes) {
  if (hashes.width == 0) {
    return py::buffer_info(hashes.integers.data(), sizeof(uint64_t),
                           py::format_descriptor<uint64_t>::format(), 1, {hashes.size()},
                           {sizeof(uint64_t)}, /*readonly=*/true);
  }
  return py::buffer_info(hashes.digests.data(), 1, py::format_descriptor<uint8_t>::format(), 2,
                         {hashes.size(), hashes.width}, {hashes.width, size_t{1}},
                         /*readonly=*/true);
}

BlockHashes Compute(const py::object& tokens, int64_t block_size, const std::string& algo,
                    const std::string& seed, const py::object& none_hash,
                    const std::string& lora_name, const std::string& lora_path,
                    const std::string& cache_salt, const py::object& mm_items,
                    const std::string& extra_keys, int64_t lookahead, const std::string& form) {
  const TokenArgument ids(tokens, "tokens");
  HashOptions options{.block_size = block_size,
                      .algorithm = algo,
                      .seed = seed,
                      .none_hash = {},
                      .inputs = {},
                      .extra_keys = extra_keys,
                      .lookahead = lookahead,
                      .form = form};
  if (!none_hash.is_none()) {
    const PayloadArgument bytes(none_hash, "none_hash");
    options.none_hash.assign(bytes.bytes().begin(), bytes.bytes().end());
    if (options.none_hash.empty()) ThrowInvalid("none_hash: must not be empty");
  }
  options.inputs.lora_name = lora_name;
  options.inputs.lora_path = lora_path;
  options.inputs.cache_salt = cache_salt;
  options.inputs.mm_items = MultimodalItemsOf(mm_items);
  return Take(WithoutGil([&] { return ComputeBlockHashes(ids.tokens(), options); }));
}

constexpr char kComputeDoc[] =
    R"(Compute the block hashes of a prompt, as vLLM computes them.

tokens: token ids, shape (n,). A buffer of int64 is read in place; buffers of other integer types
    and sequences of int are converted. Do not change a buffer during the call.
block_size: tokens per hash; at least 1.
algo: "sha256" (vLLM's default), "sha256_cbor", "xxhash" or "xxhash_cbor".
seed: PYTHONHASHSEED of the engine. none_hash: NONE_HASH as 1 to 32 bytes; it replaces seed.
lora_name, lora_path, cache_salt: of the request. "" means none.
mm_items: multimodal items, as tuples (identifier, offset, length), sorted by offset. offset and
    length are in tokens.
extra_keys: "bare" (vLLM before 0.31) or "tagged" (from 0.31 on).
lookahead: tokens after a block that its hash also covers, 0 to 8.
form: "int" (last 8 bytes of each digest, the default form of events) or "bytes" (whole digests).

Returns BlockHashes of floor((n - lookahead) / block_size) hashes. The GIL is released. Thread-safe.
Raises TypeError for a wrong type, and InvalidArgumentError for a wrong value.)";

// Mean nanoseconds per call in C++, without Python objects.
double TimeOfHashes(const py::object& tokens, int64_t block_size, int64_t repeats) {
  const TokenArgument ids(tokens, "tokens");
  const HashOptions options{.block_size = block_size, .none_hash = {}, .inputs = {}};
  return WithoutGil([&] {
    const int64_t begin = SteadyNs();
    for (int64_t i = 0; i < repeats; ++i) (void)ComputeBlockHashes(ids.tokens(), options);
    return static_cast<double>(SteadyNs() - begin) / static_cast<double>(repeats);
  });
}

}  // namespace

std::vector<MultimodalItem> MultimodalItemsOf(py::handle items) {
  std::vector<MultimodalItem> read;
  for (const py::handle item : items) {
    const std::string item_name = "mm_items[" + std::to_string(read.size()) + "]";
    if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 3) {
      ThrowType(item_name + ": must be a tuple (identifier, offset, length)");
    }
    const auto parts = py::reinterpret_borrow<py::tuple>(item);
    const Integer offset = IntegerOf(parts[1], item_name + ": offset");
    const Integer length = IntegerOf(parts[2], item_name + ": length");
    const bool valid = !offset.negative && !length.negative && offset.magnitude <= INT64_MAX &&
                       length.magnitude <= INT64_MAX && length.magnitude > 0;
    if (!valid)
      ThrowInvalid(item_name + ": the offset must be 0 to 2^63-1, and the length 1 to 2^63-1");
    read.push_back({.identifier = TextOf(parts[0], item_name + ": identifier"),
                    .offset = static_cast<int64_t>(offset.magnitude),
                    .length = static_cast<int64_t>(length.magnitude)});
  }
  return read;
}

Result<BlockHashes> ComputeBlockHashes(std::span<const TokenId> tokens,
                                       const HashOptions& options) {
  if (options.block_size < 1) return Invalid("block_size: must be at least 1");
  if (options.lookahead < 0 || options.lookahead > kMaxHashLookahead) {
    return Invalid("lookahead: must be from 0 to " + std::to_string(kMaxHashLookahead));
  }
  const auto keys = ParseExtraKeyScheme(options.extra_keys);
  if (!keys) return Invalid("extra_keys: must be bare or tagged, not '" + options.extra_keys + "'");
  if (options.form != "int" && options.form != "bytes") {
    return Invalid("form: must be int or bytes, not '" + options.form + "'");
  }
  Result<BlockHasher> hasher = HasherOf(options);
  if (!hasher.ok()) return hasher.status();
  std::vector<Digest> chain;
  hasher->ExtendChain(tokens, options.block_size, options.inputs, chain,
                      {*keys, options.lookahead});
  BlockHashes hashes;
  if (options.form == "int") {
    hashes.integers.reserve(chain.size());
    for (const Digest& digest : chain) hashes.integers.push_back(digest.low64());
    return hashes;
  }
  hashes.width = hasher->algorithm() == HashAlgorithm::kSha256 ||
                         hasher->algorithm() == HashAlgorithm::kSha256Cbor
                     ? 32
                     : 16;
  for (const Digest& digest : chain) {
    hashes.digests.insert(hashes.digests.end(), digest.bytes().begin(), digest.bytes().end());
  }
  return hashes;
}

void AddHashes(py::module_& module) {
  py::class_<BlockHashes>(module, "BlockHashes", py::buffer_protocol(),
                          R"(The block hashes of a prompt. Immutable.

A sequence of int (form "int") or bytes (form "bytes"). It is also a read-only buffer that numpy
reads in place: uint64 of shape (n,), or uint8 of shape (n, bytes per digest).)")
      .def_buffer(&BufferOf)
      .def("__len__", &BlockHashes::size)
      .def("__getitem__", &Item, py::arg("index"))
      .def("tolist", &ToList, "Return a list of int or bytes.")
      .def("__repr__", [](const BlockHashes& hashes) {
        return "<kvcast.BlockHashes of " + std::to_string(hashes.size()) + " hashes>";
      });
  module.def("compute_block_hashes", &Compute, py::arg("tokens"), py::arg("block_size") = 16,
             py::kw_only(), py::arg("algo") = "sha256",
             py::arg("seed") = std::string(kDefaultHashSeed), py::arg("none_hash") = py::none(),
             py::arg("lora_name") = "", py::arg("lora_path") = "", py::arg("cache_salt") = "",
             py::arg("mm_items") = py::tuple(), py::arg("extra_keys") = "bare",
             py::arg("lookahead") = 0, py::arg("form") = "int", kComputeDoc);
  module.def("_time_of_hashes", &TimeOfHashes, py::arg("tokens"), py::arg("block_size"),
             py::arg("repeats"), "For benchmarks: mean nanoseconds per call in C++.");
}

}  // namespace kvcast::python
