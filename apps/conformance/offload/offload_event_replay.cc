// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_event_replay.h"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "apps/conformance/offload/offload_names.h"
#include "apps/conformance/scenario/scenario_event.h"
#include "kvcast/wire/wire.h"
#include "src/offload/connector/event_writer.h"

namespace kvcast::tools {

using Json = nlohmann::json;

namespace {

constexpr size_t kGroups = 256;  // more groups than any recording has

// An integer becomes a digest of 8 bytes. Events show such a digest as the same integer.
Digest ParseDigest(const Json& value) {
  Digest digest;
  if (value.is_number()) {
    const auto number = value.get<uint64_t>();
    digest.size = sizeof(number);
    for (size_t i = 0; i < sizeof(number); ++i) {
      digest.data[i] = static_cast<uint8_t>(number >> (8 * (sizeof(number) - 1 - i)));
    }
    return digest;
  }
  const std::string bytes = HexToBytes(value.at("bytes"));
  digest.size = static_cast<uint8_t>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), digest.data.begin());
  return digest;
}

std::vector<GroupSpec> ParseSpecs(const Json& events) {
  std::vector<GroupSpec> specs(kGroups);
  for (const Json& event : events) {
    const Json kind = event.value("kv_cache_spec_kind", Json());
    if (kind.is_null()) continue;
    specs.at(event.at("group_idx").get<size_t>()).kind = ParseSpecKind(kind.get<std::string>());
  }
  return specs;
}

// Replaces {"bytes": hex} by the hex text.
Json WithPlainHashes(Json event) {
  const auto plain = [](Json& hash) {
    if (hash.is_object()) hash = Json(hash.at("bytes"));
  };
  for (Json& hash : event.at("block_hashes")) plain(hash);
  if (event.contains("parent_block_hash")) plain(event.at("parent_block_hash"));
  return event;
}

class EventReplay {
 public:
  explicit EventReplay(const Json& record)
      : record_(record),
        events_(record.at("decoded").at("events")),
        array_(record.at("event_encoding") == "array"),
        form_(record.at("event_hashes") == "bytes" ? EventHashForm::kBytes : EventHashForm::kInt64),
        writer_(
            ParseSpecs(events_), form_, kMediumCpu,
            array_ ? offload::OffloadEventForm::k2026May : offload::OffloadEventForm::kByGroup) {
    for (const std::string hex : record.value("offload_keys", Json::array())) {
      keys_.push_back(OffloadKeyOf(hex));
    }
  }

  std::vector<uint8_t> Payload() {
    for (size_t i = 0; i < events_.size();) i = Replay(i);
    const Json& decoded = record_.at("decoded");
    batch_.ts = decoded.at("ts");
    if (const Json& rank = decoded.at("data_parallel_rank"); !rank.is_null()) {
      batch_.data_parallel_rank = rank.get<int64_t>();
    }
    std::vector<uint8_t> payload;
    const Dialect dialect = array_ ? Dialect::kVllm8 : Dialect::kVllm10;
    const Status status = EncodeBatch(batch_, dialect, payload);
    if (!status.ok()) throw std::runtime_error(status.ToString());
    return payload;
  }

 private:
  // Replays the event at `i` and the following events of the same manager call. Returns the
  // position of the next event.
  size_t Replay(size_t i) {
    const Json& event = events_[i];
    if (event.value("medium", "") == kMediumGpu) {
      batch_.events.push_back(ScenarioEvent(WithPlainHashes(event)));
      return i + 1;
    }
    OffloadEvent changed;
    size_t end = i + 1;
    if (event.at("type") == "BlockStored") {
      AddStored(event, changed);
    } else {
      changed.kind = OffloadEvent::Kind::kRemoved;
      while (end < events_.size() && events_[end].at("type") == "BlockRemoved") ++end;
      AddRemoved(i, end, changed);
    }
    std::optional<std::string> locality;
    if (const Json named = event.value("locality", Json()); !named.is_null()) locality = named;
    const offload::EventTier tier{.medium = event.at("medium"), .locality = locality};
    writer_.Translate(changed, tier, batch_.events);
    return end;
  }

  OffloadKey NextKey(const Json& event) {
    if (keys_.empty()) {
      return {ParseDigest(event.at("block_hashes").back()),
              GroupIdx(event.value("group_idx", uint32_t{0}))};
    }
    const OffloadKey key = keys_.front();
    keys_.pop_front();
    return key;
  }

  void AddStored(const Json& event, OffloadEvent& changed) {
    const size_t keys = array_ ? event.at("block_hashes").size() : 1;
    for (size_t i = 0; i < keys; ++i) changed.keys.push_back(NextKey(event));
    if (event.at("block_size") == 0) return;
    offload::ChunkRecord record;
    for (const Json& hash : event.at("block_hashes")) record.hashes.push_back(ParseDigest(hash));
    if (const Json& parent = event.at("parent_block_hash"); !parent.is_null()) {
      record.parent = ParseDigest(parent);
    }
    record.tokens = event.at("token_ids").get<std::vector<TokenId>>();
    record.block_size = event.at("block_size");
    if (!event.at("lora_id").is_null()) record.lora_id = event.at("lora_id").get<int64_t>();
    if (!event.at("lora_name").is_null()) record.lora_name = event.at("lora_name");
    writer_.Describe(changed.keys[0], std::move(record));
  }

  // An event lists the hashes of the removed chunks, one chunk after another. The hash of a key is
  // the last hash of its chunk.
  void AddRemoved(size_t begin, size_t end, OffloadEvent& changed) {
    if (keys_.empty()) {
      for (size_t i = begin; i < end; ++i) {
        for (const Json& hash : events_[i].at("block_hashes")) {
          changed.keys.push_back({ParseDigest(hash), GroupIdx(events_[i].at("group_idx"))});
        }
      }
      return;
    }
    std::vector<size_t> used(end - begin, 0);
    while (!keys_.empty()) {
      const OffloadKey key = keys_.front();
      const BlockHash own = ToEventHash(key.digest, hash_form());
      bool found = false;
      for (size_t i = begin; i < end && !found; ++i) {
        if (!array_ && events_[i].at("group_idx") != key.group.value) continue;
        const Json& hashes = events_[i].at("block_hashes");
        offload::ChunkRecord record;
        size_t next = used[i - begin];
        while (next < hashes.size() && !found) {
          found = ToEventHash(ParseDigest(hashes[next]), hash_form()) == own;
          record.hashes.push_back(ParseDigest(hashes[next++]));
        }
        if (!found) continue;
        used[i - begin] = next;
        if (record.hashes.size() > 1) writer_.Describe(key, std::move(record));
      }
      if (!found) return;
      changed.keys.push_back(key);
      keys_.pop_front();
    }
  }

  EventHashForm hash_form() const { return array_ ? EventHashForm::kBytes : form_; }

  const Json& record_;
  const Json& events_;
  const bool array_;
  const EventHashForm form_;
  offload::EventWriter writer_;
  std::deque<OffloadKey> keys_;  // recorded keys of the events that were not replayed yet
  EventBatch batch_;
};

}  // namespace

void RunOffloadEvents(const Json& record, OffloadChecks& checks) {
  const std::vector<uint8_t> payload = EventReplay(record).Payload();
  const std::string recorded = HexToBytes(record.at("hex"));
  checks.Check(std::equal(payload.begin(), payload.end(), recorded.begin(), recorded.end(),
                          [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); }),
               record.at("name").get<std::string>() + ": payload differs");
}

}  // namespace kvcast::tools
