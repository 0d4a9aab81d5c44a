// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/mooncake_writer.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <variant>

#include "kvcast/core/tier.h"
#include "src/wire/writer.h"

namespace kvcast::router {
namespace {

using wire::Writer;

// Returns the part of the event that the format cannot represent. nullptr: the format can represent
// the whole event.
const char* Unrepresentable(const BlockStored& event) {
  if (event.block_hashes.empty()) return "a store without hashes";
  if (event.lora_id || event.tokens_per_position != 1) return "a LoRA id, or token pairs";
  if (event.token_offset &&
      (event.block_size <= 0 || *event.token_offset % event.block_size != 0)) {
    return "a token offset inside a block";
  }
  if (!event.extra_keys) return nullptr;
  for (const auto& keys : *event.extra_keys) {
    if (keys && !keys->empty()) return "extra keys";
  }
  return nullptr;
}

const char* MediumName(const std::optional<std::string>& medium) {
  const Tier tier = TierOf(medium);
  return tier == Tier::kGpu ? "gpu" : tier == Tier::kCpu ? "cpu" : "disk";
}

void PutHash(Writer& out, const BlockHash& hash) {
  if (hash.is_bytes()) return out.Binary(hash.bytes());
  if (hash.form() == BlockHash::Form::kNegative) {
    return out.Signed(static_cast<int64_t>(hash.integer()));
  }
  out.Unsigned(hash.integer());
}

void PutHashes(Writer& out, const std::vector<BlockHash>& hashes) {
  out.ArrayHead(hashes.size());
  for (const BlockHash& hash : hashes) PutHash(out, hash);
}

// Collects the members of one event, because the head of a map contains their number.
class EventMap {
 public:
  EventMap(uint64_t id, int64_t ts_ms, const MooncakeWriterConfig& config, const char* type)
      : out_(bytes_) {
    Member("event_id").Unsigned(id);
    Member("timestamp").Signed(ts_ms);
    Member("event_type").Text(type);
    Member("tenant_id").Text(config.tenant_id);
    if (!config.backend_id.empty()) Member("backend_id").Text(config.backend_id);
    if (!config.model_name.empty()) Member("model_name").Text(config.model_name);
    Member("dp_rank").Nil();
  }
  Writer& Member(std::string_view key) {
    ++members_;
    out_.Text(key);
    return out_;
  }
  void AppendTo(Writer& out) {
    out_.Close();
    out.MapHead(members_);
    out.Raw(bytes_);
  }

 private:
  std::vector<uint8_t> bytes_;
  Writer out_;
  size_t members_ = 0;
};

void Fill(EventMap& map, const BlockStored& event) {
  map.Member("medium").Text(MediumName(event.medium));
  map.Member("group_id").Text(std::to_string(event.group_idx.value_or(0)));
  map.Member("block_size").Signed(event.block_size);
  PutHashes(map.Member("seq_hashes"), event.block_hashes);
  if (event.parent_block_hash) PutHash(map.Member("parent_hash"), *event.parent_block_hash);
  if (event.token_offset) {
    map.Member("base_block_idx").Signed(*event.token_offset / event.block_size);
  }
  if (event.token_ids) {
    Writer& out = map.Member("token_ids");
    out.ArrayHead(event.token_ids->size());
    out.SignedList(*event.token_ids);
  }
  if (event.lora_name) map.Member("lora_name").Text(*event.lora_name);
  if (const auto salt = CacheSaltOf(event); !salt.empty()) map.Member("additional_salt").Text(salt);
}

void Fill(EventMap& map, const BlockRemoved& event) {
  map.Member("medium").Text(MediumName(event.medium));
  map.Member("group_id").Text(std::to_string(event.group_idx.value_or(0)));
  PutHashes(map.Member("seq_hashes"), event.block_hashes);
}

void Fill(EventMap&, const AllBlocksCleared&) {}

const char* TypeName(const BlockStored&) { return "stored"; }
const char* TypeName(const BlockRemoved&) { return "removed"; }
const char* TypeName(const AllBlocksCleared&) { return "cleared"; }

}  // namespace

Status MooncakeWriter::Write(const EventBatch& batch, std::vector<uint8_t>& out) {
  for (const Event& event : batch.events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    const char* const problem = stored == nullptr ? nullptr : Unrepresentable(*stored);
    if (problem == nullptr) continue;
    return {StatusCode::kInvalidArgument, std::string("mooncake: cannot represent ") + problem};
  }
  const auto ts_ms = static_cast<int64_t>(std::llround(batch.ts * 1000));
  Writer writer(out);
  writer.ArrayHead(3);
  writer.Signed(ts_ms);
  writer.ArrayHead(batch.events.size());
  for (const Event& event : batch.events) {
    std::visit(
        [&](const auto& e) {
          EventMap map(next_id_++, ts_ms, config_, TypeName(e));
          Fill(map, e);
          map.AppendTo(writer);
        },
        event);
  }
  if (batch.data_parallel_rank) {
    writer.Signed(*batch.data_parallel_rank);
  } else {
    writer.Nil();
  }
  writer.Close();
  return Status();
}

}  // namespace kvcast::router
