// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "tests/fuzz/oracle.h"

namespace kvcast::oracle {
namespace {

using Object = msgpack::object;

struct NotABatch {};

void ReadEnvelope(const Object& ts, const Object& events, const Object* rank,
                  const WireLimits& limits, Batch& batch) {
  if (IsFloat(ts)) {
    batch.ts = ts.via.f64;
  } else if (IsUnsigned(ts)) {
    batch.ts = static_cast<double>(ts.via.u64);
  } else if (IsNegative(ts)) {
    batch.ts = static_cast<double>(ts.via.i64);
  } else {
    throw NotABatch();
  }
  if (!IsArray(events) || events.via.array.size > limits.max_events) throw NotABatch();
  if (rank != nullptr && !IsNil(*rank)) {
    if (!IsNegative(*rank) && !(IsUnsigned(*rank) && rank->via.u64 <= INT64_MAX)) throw NotABatch();
    batch.data_parallel_rank = static_cast<int64_t>(rank->via.u64);
  }
  for (uint32_t i = 0; i < events.via.array.size; ++i) {
    std::optional<Event> event = DecodeEvent(events.via.array.ptr[i], limits);
    if (event) {
      batch.events.push_back(*std::move(event));
    } else {
      ++batch.rejected;
    }
  }
}

void RequireShallow(const Object& value, const WireLimits& limits) {
  if (DepthOf(value) + 1 > limits.max_depth) throw NotABatch();
}

void ReadMapEnvelope(const Object& o, const WireLimits& limits, Batch& batch) {
  const Object* parts[3] = {};
  for (uint32_t i = 0; i < o.via.map.size; ++i) {
    const auto& [key, value] = o.via.map.ptr[i];
    const std::string name = IsText(key) ? std::string(key.via.str.ptr, key.via.str.size) : "";
    const int part = name == "ts"                                             ? 0
                     : name == "events"                                       ? 1
                     : name == "data_parallel_rank" || name == "attn_dp_rank" ? 2
                                                                              : -1;
    if (part < 0) {
      RequireShallow(value, limits);
    } else if (std::exchange(parts[part], &value) != nullptr) {
      throw NotABatch();
    }
  }
  if (parts[0] == nullptr || parts[1] == nullptr) throw NotABatch();
  ReadEnvelope(*parts[0], *parts[1], parts[2], limits, batch);
}

void ReadArrayEnvelope(const Object& o, const WireLimits& limits, Batch& batch) {
  const auto& elements = o.via.array;
  if (elements.size < 2) throw NotABatch();
  for (uint32_t i = 3; i < elements.size; ++i) RequireShallow(elements.ptr[i], limits);
  ReadEnvelope(elements.ptr[0], elements.ptr[1], elements.size > 2 ? &elements.ptr[2] : nullptr,
               limits, batch);
}

}  // namespace

uint32_t DepthOf(const Object& o) {
  uint32_t deepest = 0;
  if (IsArray(o)) {
    for (uint32_t i = 0; i < o.via.array.size; ++i) {
      deepest = std::max(deepest, DepthOf(o.via.array.ptr[i]));
    }
  } else if (IsMap(o)) {
    for (uint32_t i = 0; i < o.via.map.size; ++i) {
      deepest = std::max(deepest, DepthOf(o.via.map.ptr[i].key));
      deepest = std::max(deepest, DepthOf(o.via.map.ptr[i].val));
    }
  } else {
    return 0;
  }
  return deepest + 1;
}

std::optional<msgpack::object_handle> Unpack(const char* data, size_t size) {
  // An element takes at least a byte, so no valid input exceeds these limits.
  const msgpack::unpack_limit limit(size, size, size, size, size, size + 1);
  try {
    size_t offset = 0;
    msgpack::object_handle handle = msgpack::unpack(data, size, offset, nullptr, nullptr, limit);
    if (offset != size) return std::nullopt;
    return handle;
  } catch (const msgpack::unpack_error&) {
    return std::nullopt;
  }
}

std::optional<Batch> DecodeBatch(const Object& object, const WireLimits& limits) {
  Batch batch;
  try {
    if (IsMap(object)) {
      ReadMapEnvelope(object, limits, batch);
    } else if (IsArray(object)) {
      ReadArrayEnvelope(object, limits, batch);
    } else {
      return std::nullopt;
    }
  } catch (const NotABatch&) {
    return std::nullopt;
  }
  return batch;
}

}  // namespace kvcast::oracle
