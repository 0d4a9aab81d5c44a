// Fuzz target: kvcast's decoder and a second decoder over msgpack-cxx agree. They agree on
// whether the input is valid MessagePack and whether it is a valid batch. They reject the same
// number of events, and give every accepted event the same values.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>

#include "kvcast/wire/wire.h"
#include "src/base/check.h"
#include "src/wire/reader.h"
#include "tests/fuzz/oracle.h"
#include "tests/support/kept_fields.h"

namespace kvcast {
namespace {

bool IsOneValue(std::span<const uint8_t> input) {
  wire::Reader reader(input);
  return reader.Skip() && reader.at_end();
}

void CheckAgainstOracle(std::span<const uint8_t> input, const msgpack::object& object) {
  const WireLimits limits;
  EventBatch batch;
  DecodeCounts counts;
  const Status status = DecodeBatch(input, limits, batch, counts);
  const std::optional<oracle::Batch> expected = oracle::DecodeBatch(object, limits);
  // Only kvcast's decoder has limits on sums over the batch. Small inputs cannot reach the other
  // limits of the batch.
  if (expected && !status.ok() && status.code() == StatusCode::kLimit) return;
  KV_CHECK(status.ok() == expected.has_value());
  if (!expected) return;
  KV_CHECK(counts.rejected_total() == expected->rejected);
  KV_CHECK(wire::SameBatch(
      batch, EventBatch{expected->ts, expected->events, expected->data_parallel_rank}));
}

void CheckOne(std::span<const uint8_t> input) {
  const auto unpacked = oracle::Unpack(reinterpret_cast<const char*>(input.data()), input.size());
  KV_CHECK(IsOneValue(input) == unpacked.has_value());
  if (unpacked) return CheckAgainstOracle(input, unpacked->get());
  EventBatch batch;
  DecodeCounts counts;
  KV_CHECK(!DecodeBatch(input, WireLimits(), batch, counts).ok());
}

}  // namespace
}  // namespace kvcast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcast::CheckOne({data, size});
  return 0;
}
