// Fuzz target: a decoded batch can be encoded in six dialects. Decoding the payload gives a batch
// that is equal in the fields that the dialect keeps.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/wire/wire.h"
#include "src/base/check.h"
#include "tests/support/kept_fields.h"

namespace kvcast {
namespace {

void CheckRoundTrip(const EventBatch& batch, Dialect dialect) {
  std::vector<uint8_t> payload;
  KV_CHECK(EncodeBatch(batch, dialect, payload).ok());
  EventBatch again;
  DecodeCounts counts;
  KV_CHECK(DecodeBatch(payload, WireLimits(), again, counts).ok());
  KV_CHECK(counts.rejected_total() == 0 && counts.unknown_fields == 0);
  KV_CHECK(wire::SameBatch(again, wire::KeptFields(batch, dialect)));
  std::vector<uint8_t> payload_again;
  KV_CHECK(EncodeBatch(again, dialect, payload_again).ok());
  KV_CHECK(payload == payload_again);
}

void CheckOne(std::span<const uint8_t> input) {
  EventBatch batch;
  DecodeCounts counts;
  if (!DecodeBatch(input, WireLimits(), batch, counts).ok()) {
    KV_CHECK(batch.events.empty() && counts.decoded == 0 && counts.rejected_total() == 0);
    return;
  }
  KV_CHECK(batch.events.size() == counts.decoded);
  for (const Dialect dialect : {Dialect::kVllm11, Dialect::kVllm12, Dialect::kVllm8,
                                Dialect::kSglang5, Dialect::kSglang4, Dialect::kKvcast1}) {
    CheckRoundTrip(batch, dialect);
  }
}

}  // namespace
}  // namespace kvcast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcast::CheckOne({data, size});
  return 0;
}
