// A second decoder of event batches. It reads msgpack-cxx's object model by the rules in
// schemas/README.md. It is slow and simple, and shares no code with the library's decoder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <optional>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/wire/wire.h"

namespace kvcast::oracle {

inline bool IsText(const msgpack::object& o) { return o.type == msgpack::type::STR; }
inline bool IsNil(const msgpack::object& o) { return o.type == msgpack::type::NIL; }
inline bool IsArray(const msgpack::object& o) { return o.type == msgpack::type::ARRAY; }
inline bool IsMap(const msgpack::object& o) { return o.type == msgpack::type::MAP; }
inline bool IsUnsigned(const msgpack::object& o) {
  return o.type == msgpack::type::POSITIVE_INTEGER;
}
inline bool IsNegative(const msgpack::object& o) {
  return o.type == msgpack::type::NEGATIVE_INTEGER;
}
inline bool IsFloat(const msgpack::object& o) {
  return o.type == msgpack::type::FLOAT32 || o.type == msgpack::type::FLOAT64;
}
// Levels of containers in a value; 0 for scalars.
uint32_t DepthOf(const msgpack::object& o);

// Decodes one event; nullopt: the event is rejected.
std::optional<Event> DecodeEvent(const msgpack::object& object, const WireLimits& limits);

struct Batch {
  double ts = 0;
  std::optional<int64_t> data_parallel_rank;
  std::vector<Event> events;
  uint64_t rejected = 0;
};
// nullopt: `object` is not a batch, or it exceeds a limit of the batch envelope. Does not check the
// limits on sums over the batch.
std::optional<Batch> DecodeBatch(const msgpack::object& object, const WireLimits& limits);

// Reads the whole input as one MessagePack value; nullopt: the input is not exactly one value.
std::optional<msgpack::object_handle> Unpack(const char* data, size_t size);

}  // namespace kvcast::oracle
