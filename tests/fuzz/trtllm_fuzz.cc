// Fuzz target: TensorRT-LLM's JSON events. The decoder stores only blocks that it does not hold,
// and removes only blocks that it holds, from their tier. After an unreadable text, the decoder
// holds no blocks. Events in one array and events one by one give the same blocks in the same
// order.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "router/service/ingest/trtllm_events.h"
#include "router/service/json/bounded_json.h"
#include "router/service/json/json_fields.h"
#include "src/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/kept_fields.h"

namespace kvcast::router {
namespace {

constexpr size_t kHeldMax = 6;
constexpr size_t kDepth = 16;
constexpr int64_t kTokens = 2;

TrtllmEvents NewEvents() {
  TrtllmConfig config;
  config.window_sizes = {4096, 512};
  config.tokens_per_block = kTokens;
  config.json_bytes_max = 4000;
  config.hashes_max = kHeldMax;
  return TrtllmEvents::Create(config).value();
}

uint64_t Counted(const TrtllmCounters& counters) {
  return counters.events + counters.bad_events + counters.other_ranks;
}

// A hash as text, with its form.
std::string NameOf(const BlockHash& hash) {
  if (!hash.is_bytes())
    return std::to_string(hash.integer()) + (hash.form() == BlockHash::Form::kNegative ? "-" : "+");
  return "x" + std::string(fuzz::TextOf(hash.bytes()));
}

void AppendEach(const BlockStored& stored, std::vector<Event>& out) {
  const size_t count = stored.block_hashes.size();
  KV_CHECK(count > 0);
  KV_CHECK(!stored.token_ids || stored.token_ids->size() == count * kTokens);
  KV_CHECK(!stored.extra_keys || count == 1);
  for (size_t i = 0; i < count; ++i) {
    BlockStored one = stored;
    one.block_hashes = {stored.block_hashes[i]};
    if (i > 0) one.parent_block_hash = stored.block_hashes[i - 1];
    if (stored.token_ids) {
      const auto first = stored.token_ids->begin() + static_cast<std::ptrdiff_t>(i) * kTokens;
      one.token_ids.emplace(first, first + kTokens);
    }
    out.emplace_back(std::move(one));
  }
}

// Returns the batch with an event for each block.
EventBatch OneBlockEach(const EventBatch& batch) {
  EventBatch each;
  for (const Event& event : batch.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) AppendEach(*stored, each.events);
    const auto* removed = std::get_if<BlockRemoved>(&event);
    for (size_t i = 0; removed != nullptr && i < removed->block_hashes.size(); ++i) {
      BlockRemoved one = *removed;
      one.block_hashes = {removed->block_hashes[i]};
      each.events.emplace_back(std::move(one));
    }
    KV_CHECK(!std::holds_alternative<AllBlocksCleared>(event));
  }
  return each;
}

// The blocks that the events have announced.
class AnnouncedBlocks {
 public:
  void Take(const EventBatch& batch) {
    for (const Event& event : batch.events) {
      if (const auto* stored = std::get_if<BlockStored>(&event)) Store(*stored);
      if (const auto* removed = std::get_if<BlockRemoved>(&event)) Remove(*removed);
    }
  }
  void Clear() { media_.clear(); }
  size_t size() const { return media_.size(); }

 private:
  using BlockKey = std::pair<int64_t, std::string>;  // group and hash

  void Store(const BlockStored& stored) {
    KV_CHECK(stored.block_size == kTokens);
    KV_CHECK(stored.group_idx == 0 || stored.group_idx == 1);
    KV_CHECK(stored.kv_cache_spec_kind ==
             (stored.group_idx == 0 ? "full_attention" : "sliding_window"));
    const BlockKey key(*stored.group_idx, NameOf(stored.block_hashes[0]));
    KV_CHECK(media_.emplace(key, *stored.medium).second);
    KV_CHECK(media_.size() <= kHeldMax);
  }
  void Remove(const BlockRemoved& removed) {
    const auto held = media_.find({*removed.group_idx, NameOf(removed.block_hashes[0])});
    KV_CHECK(held != media_.end() && held->second == *removed.medium);
    media_.erase(held);
  }

  std::map<BlockKey, std::string> media_;
};

class Run {
 public:
  void Take(std::string_view text) {
    const TrtllmCounters before = whole_.counters();
    const auto batch = whole_.Decode(text);
    if (!batch.ok()) {
      fuzz::CheckReason(batch.status());
      KV_CHECK(whole_.lacks_events());
      held_.Clear();
      return single_.Forget();
    }
    held_.Take(OneBlockEach(*batch));
    const TrtllmCounters now = whole_.counters();
    const bool dropped = now.bad_events > before.bad_events;
    const Json json = ReadJson(text, {.max_depth = kDepth}).value();
    if (!json.is_array() && dropped) KV_CHECK(held_.size() == 0 && whole_.lacks_events());
    const size_t events = json.is_array() ? json.size() : 1;
    KV_CHECK(Counted(now) - Counted(before) == events);
    CheckOneByOne(json, *batch);
  }

 private:
  void CheckOneByOne(const Json& json, const EventBatch& batch) {
    EventBatch all;
    const auto take = [&](const Json& event) {
      auto one = single_.Decode(event.dump());
      KV_CHECK(one.ok());
      for (Event& each : one->events) all.events.push_back(std::move(each));
    };
    if (json.is_array()) {
      // An array in the array is not an event.
      for (const Json& event : json) take(event.is_array() ? Json(nullptr) : event);
    } else {
      take(json);
    }
    KV_CHECK(whole_.lacks_events() == single_.lacks_events());
    KV_CHECK(wire::SameBatch(OneBlockEach(batch), OneBlockEach(all)));
  }

  TrtllmEvents whole_ = NewEvents();
  TrtllmEvents single_ = NewEvents();
  AnnouncedBlocks held_;
};

}  // namespace
}  // namespace kvcast::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcast::router::Run run;
  // Each line is a text of the engine.
  std::string_view text = kvcast::fuzz::TextOf({data, size});
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    run.Take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}
