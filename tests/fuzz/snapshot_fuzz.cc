// Fuzz target: the snapshot reader reads or refuses any bytes as a part of a snapshot. A state that
// the reader has accepted can be written and read again.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/check.h"
#include "src/residency/mirror.h"
#include "src/residency/snapshot_reader.h"
#include "src/residency/snapshot_writer.h"

namespace kvcast::residency {
namespace {

void CheckOne(std::span<const uint8_t> input) {
  SnapshotReader reader({.max_copies = 10000});
  EventBatch batch;
  if (!reader.Read(input, batch).ok()) return;
  Mirror mirror;
  mirror.Apply(batch);
  const ResidencyTotals totals = mirror.digest().Totals();
  KV_CHECK(reader.Finish(totals).ok());
  SnapshotReader again;
  for (const Payload& part : WriteSnapshot(mirror, {})) {
    KV_CHECK(again.Read(*part, batch).ok());
  }
  KV_CHECK(again.Finish(totals).ok());
}

}  // namespace
}  // namespace kvcast::residency

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcast::residency::CheckOne({data, size});
  return 0;
}
