// SPDX-License-Identifier: Apache-2.0
#include "kvcast/wire/wire.h"

#include <utility>

#include "python/src/arguments.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

Dialect DialectOf(const std::string& name) {
  const auto dialect = ParseDialect(name);
  if (!dialect) ThrowInvalid("dialect: unknown dialect '" + name + "'");
  return *dialect;
}

EventBatch Decode(const py::object& payload, bool strict) {
  const PayloadArgument bytes(payload, "payload");
  EventBatch batch;
  DecodeCounts counts;
  Check(WithoutGil([&] { return DecodeBatch(bytes.bytes(), WireLimits(), batch, counts); }));
  if (!strict || counts.rejected_total() == 0) return batch;
  std::string text = "the batch has events that cannot be decoded:";
  for (size_t i = 0; i < kRejectReasons; ++i) {
    if (counts.rejected[i] == 0) continue;
    text += " " + std::to_string(counts.rejected[i]) + " " +
            std::string(RejectName(static_cast<Reject>(i)));
  }
  Throw(Status(StatusCode::kMalformed, text));
}

py::bytes Encode(const EventBatch& batch, const std::string& dialect) {
  const Dialect chosen = DialectOf(dialect);
  std::vector<uint8_t> out;
  Check(WithoutGil([&] { return EncodeBatch(batch, chosen, out); }));
  return py::bytes(reinterpret_cast<const char*>(out.data()), out.size());
}

}  // namespace

void AddWire(py::module_& module) {
  module.def("decode_batch", &Decode, py::arg("payload"), py::kw_only(), py::arg("strict") = true,
             R"(Decode one payload of any known dialect of vLLM or SGLang.

payload: bytes or another contiguous buffer; it is read in place.
strict: True raises MalformedError if an event of the batch cannot be decoded. False leaves such
    events out, as a router does.

Returns an EventBatch. The GIL is released. Thread-safe. Raises MalformedError if the payload is not
a batch, LimitError if it exceeds a limit of the decoder, and TypeError if it is not a buffer.)");
  module.def("encode_batch", &Encode, py::arg("batch"), py::arg("dialect") = "vllm-12",
             R"(Encode a batch. The bytes are equal to those of the producer's own encoder.

dialect: "vllm-1" to "vllm-12", "sglang-1" to "sglang-5" or "kvcast-1". Fields that the dialect does
    not have are omitted.

Returns bytes. The GIL is released. Thread-safe. Raises InvalidArgumentError for an unknown dialect,
and if the batch contains a value that no decoder accepts.)");
}

}  // namespace kvcast::python
