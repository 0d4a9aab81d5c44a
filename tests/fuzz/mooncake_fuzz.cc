// Fuzz target: batches of Mooncake's event maps. A decoder that gets whole batches and a decoder
// that gets the events one by one give the same events. Each event is counted once. The cost of a
// batch is bounded: repeated removes of one object do not repeat its hashes.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "kvcast/core/tier.h"
#include "kvcast/router/prefix_index.h"
#include "router/service/ingest/mooncake_events.h"
#include "src/base/check.h"
#include "src/wire/reader.h"
#include "src/wire/writer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/kept_fields.h"

namespace kvcast::router {
namespace {

using fuzz::Bytes;

// Small bounds, which small inputs reach.
MooncakeConfig Limits() {
  MooncakeConfig config;
  config.bytes_max = 2048;
  config.hashes_max = 8;
  config.tokens_max = 16;
  config.batch_events_max = 24;
  config.batch_hashes_max = 24;
  config.batch_tokens_max = 48;
  config.objects_max = 4;
  config.object_hashes_max = 16;
  return config;
}

uint64_t Counted(const MooncakeCounters& counters) {
  return counters.events + counters.bad_events + counters.unknown_types + counters.others +
         counters.opaque + counters.refused;
}

// One batch for each event of a batch that a decoder has accepted.
std::vector<std::vector<uint8_t>> OneByOne(Bytes payload) {
  wire::Reader in(payload);
  wire::Value head;
  wire::Value ts;
  wire::Value events;
  KV_CHECK(in.Next(head) && in.Next(ts) && in.Next(events));
  std::vector<std::vector<uint8_t>> batches;
  for (uint64_t i = 0; i < events.number; ++i) {
    const uint8_t* const begin = in.position();
    KV_CHECK(in.Skip());
    wire::Writer out(batches.emplace_back());
    out.ArrayHead(3);
    out.Unsigned(1);
    out.ArrayHead(1);
    out.Raw({begin, static_cast<size_t>(in.position() - begin)});
    out.Unsigned(0);
    out.Close();
  }
  return batches;
}

bool IsClear(const Event& event) { return std::holds_alternative<AllBlocksCleared>(event); }

// A clear of the three tiers has no effect if it follows a clear of the three tiers.
void Append(std::vector<Event> events, std::vector<Event>& to) {
  const bool repeats = !to.empty() && IsClear(to.back()) && !events.empty() && IsClear(events[0]);
  if (repeats) events.erase(events.begin(), events.begin() + kTiers);
  for (Event& event : events) to.push_back(std::move(event));
}

size_t CheckEvent(const Event& event) {
  if (const auto* stored = std::get_if<BlockStored>(&event)) {
    KV_CHECK(!stored->block_hashes.empty() && stored->block_hashes.size() <= Limits().hashes_max);
    KV_CHECK(stored->medium && stored->group_idx);
    KV_CHECK(*stored->group_idx >= 0 && *stored->group_idx < kMaxGroups);
    KV_CHECK(stored->block_size >= 0 && stored->token_offset.value_or(0) >= 0);
    KV_CHECK(!stored->token_ids || stored->token_ids->size() <= Limits().tokens_max);
    return stored->block_hashes.size();
  }
  if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
    KV_CHECK(!removed->block_hashes.empty() && removed->medium && removed->group_idx);
    return removed->block_hashes.size();
  }
  return 0;
}

class Run {
 public:
  void Take(Bytes payload) {
    const uint64_t counted = Counted(whole_.counters());
    const auto batch = whole_.Decode(payload);
    if (!batch.ok()) {
      fuzz::CheckReason(batch.status());
      whole_.Restart();
      return single_.Restart();
    }
    const auto pieces = OneByOne(payload);
    KV_CHECK(Counted(whole_.counters()) - counted == pieces.size());
    KV_CHECK(pieces.size() <= Limits().batch_events_max);
    size_t hashes = 0;
    for (const Event& event : batch->events) hashes += CheckEvent(event);
    // A batch stores each of its hashes at most once, and removes each hash at most once by name.
    // The batch may also remove the objects that it stores. An object that was held before the
    // batch is removed at most once for each tier.
    const size_t most = 3 * Limits().batch_hashes_max + kTiers * Limits().object_hashes_max;
    KV_CHECK(hashes <= most);
    std::vector<Event> expected;
    for (const auto& piece : pieces) Append(single_.Decode(piece).value().events, expected);
    KV_CHECK(wire::SameBatch({.events = batch->events}, {.events = expected}));
  }

 private:
  MooncakeEvents whole_{Limits()};
  MooncakeEvents single_{Limits()};
};

}  // namespace
}  // namespace kvcast::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcast::fuzz::Parts parts({data, size});
  kvcast::router::Run run;
  while (const auto part = parts.Next()) run.Take(*part);
  return 0;
}
