// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/trtllm_writer.h"

#include <string_view>
#include <utility>
#include <variant>

namespace kvcast::router {
namespace {

constexpr int64_t kPriority = 35;  // TensorRT-LLM's default retention priority

// TensorRT-LLM's hashes have 64 bits. A longer hash is cut to its last 8 bytes.
uint64_t NumberOfHash(const BlockHash& hash) {
  if (!hash.is_bytes()) return hash.integer();
  uint64_t number = 0;
  for (const uint8_t byte : hash.bytes()) number = number << 8 | byte;
  return number;
}

Status CannotRepresent(const char* what) {
  return {StatusCode::kInvalidArgument, std::string("trtllm: cannot represent ") + what};
}

bool HasExtraKeys(const BlockStored& event) {
  if (event.lora_id || event.lora_name || !CacheSaltOf(event).empty()) return true;
  if (!event.extra_keys) return false;
  for (const auto& keys : *event.extra_keys) {
    if (keys && !keys->empty()) return true;
  }
  return false;
}

}  // namespace

TrtllmWriter::TrtllmWriter(TrtllmWriterConfig config) : config_(std::move(config)) {
  for (size_t i = 0; i < config_.window_sizes.size(); ++i) {
    blocks_.emplace_back(0, SeededHash{ProcessSeed()});
  }
}

Status TrtllmWriter::Check(const EventBatch& batch) const {
  for (const Event& event : batch.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      if (Status status = Check(*stored); !status.ok()) return status;
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      const int64_t group = removed->group_idx.value_or(0);
      if (group < 0 || group >= std::ssize(blocks_)) return CannotRepresent("the group");
    }
  }
  return Status();
}

Status TrtllmWriter::Check(const BlockStored& event) const {
  const int64_t group = event.group_idx.value_or(0);
  if (group < 0 || group >= std::ssize(blocks_)) return CannotRepresent("the group");
  const Tier tier = TierOf(event.medium);
  if (tier == Tier::kStorage) return CannotRepresent("a block on storage");
  if (HasExtraKeys(event)) return CannotRepresent("extra keys");
  const int64_t tokens = event.token_ids ? std::ssize(*event.token_ids) : 0;
  const bool placeholder = tier == Tier::kCpu && tokens == 0;
  if (placeholder) {
    for (const BlockHash& hash : event.block_hashes) {
      if (!blocks_[static_cast<size_t>(group)].contains(hash)) {
        return CannotRepresent("a block without tokens");
      }
    }
    return Status();
  }
  if (event.block_size != config_.tokens_per_block || event.tokens_per_position != 1) {
    return CannotRepresent("the block size");
  }
  if (tokens != std::ssize(event.block_hashes) * event.block_size) {
    return CannotRepresent("blocks with another number of tokens");
  }
  return Status();
}

void TrtllmWriter::Begin(size_t group, const char* type) {
  if (json_.size() > 1) json_ += ',';
  begun_group_ = group;
  json_ += "{\"event_id\":" + std::to_string(next_id_++) + ",\"data\":{\"type\":\"" + type + '"';
}

void TrtllmWriter::End() {
  json_ += "},\"window_size\":" + std::to_string(config_.window_sizes[begun_group_]);
  if (config_.attention_dp_rank) {
    json_ += ",\"attention_dp_rank\":" + std::to_string(*config_.attention_dp_rank);
  }
  json_ += '}';
}

Status TrtllmWriter::Write(const EventBatch& batch, std::string& out) {
  if (Status status = Check(batch); !status.ok()) return status;
  json_ = "[";
  for (size_t group = 0; next_id_ < std::ssize(blocks_); ++group) {
    Begin(group, "created");
    json_ += ",\"num_blocks_per_cache_level\":[0,0]";
    End();
  }
  for (const Event& event : batch.events) {
    std::visit([this](const auto& e) { Add(e); }, event);
  }
  out += json_ + ']';
  return Status();
}

void TrtllmWriter::Add(const BlockStored& event) {
  const auto group = static_cast<size_t>(event.group_idx.value_or(0));
  const Tier tier = TierOf(event.medium);
  std::optional<BlockHash> parent = event.parent_block_hash;
  bool open = false;  // a "stored" event is open, and the next new block joins it
  for (size_t i = 0; i < event.block_hashes.size(); ++i) {
    const BlockHash& hash = event.block_hashes[i];
    Places& places = blocks_[group][hash];
    const Places before = places;
    (tier == Tier::kGpu ? places.gpu : places.cpu) = true;
    const bool is_new = !before.gpu && !before.cpu;
    if (!is_new && open) {
      json_ += ']';
      End();
      open = false;
    }
    if (is_new && !open) {
      Begin(group, "stored");
      json_ += ",\"parent_hash\":" + (parent ? std::to_string(NumberOfHash(*parent)) : "null");
      json_ += ",\"blocks\":[";
    }
    if (is_new) {
      if (std::exchange(open, true)) json_ += ',';
      json_ += "{\"type\":\"stored_block\",\"block_hash\":" + std::to_string(NumberOfHash(hash)) +
               ",\"tokens\":[";
      const auto first = i * static_cast<size_t>(event.block_size);
      for (size_t k = first; k < first + static_cast<size_t>(event.block_size); ++k) {
        if (k > first) json_ += ',';
        json_ +=
            "{\"type\":\"unique_token\",\"token_id\":" + std::to_string((*event.token_ids)[k]) +
            ",\"token_extra_id\":0}";
      }
      json_ += "],\"cache_level\":" + std::to_string(tier == Tier::kGpu ? 0 : 1) +
               ",\"priority\":" + std::to_string(kPriority) + '}';
    } else if (tier == Tier::kGpu && !before.gpu) {
      WriteUpdate(group, hash, /*to_gpu=*/true);
    }
    parent = hash;
  }
  if (!open) return;
  json_ += ']';
  End();
}

void TrtllmWriter::WriteUpdate(size_t group, const BlockHash& hash, bool to_gpu) {
  Begin(group, "updated");
  json_ += ",\"block_hash\":" + std::to_string(NumberOfHash(hash)) +
           ",\"cache_level\":{\"type\":\"event_diff\",\"new_value\":" + (to_gpu ? "0" : "1") +
           ",\"old_value\":" + (to_gpu ? "1" : "0") + "},\"priority\":null";
  End();
}

void TrtllmWriter::Remove(size_t group, const BlockHash& hash, Tier tier) {
  const auto it = blocks_[group].find(hash);
  if (it == blocks_[group].end()) return;
  Places& places = it->second;
  const bool was_on_gpu = places.gpu;
  (tier == Tier::kGpu ? places.gpu : places.cpu) = false;
  if (places.gpu || (places.cpu && !was_on_gpu)) return;
  if (places.cpu) return WriteUpdate(group, hash, /*to_gpu=*/false);
  Begin(group, "removed");
  json_ += ",\"block_hashes\":[" + std::to_string(NumberOfHash(hash)) + ']';
  End();
  blocks_[group].erase(it);
}

void TrtllmWriter::Add(const BlockRemoved& event) {
  for (const BlockHash& hash : event.block_hashes) {
    Remove(static_cast<size_t>(event.group_idx.value_or(0)), hash, TierOf(event.medium));
  }
}

void TrtllmWriter::Add(const AllBlocksCleared& event) {
  for (size_t group = 0; group < blocks_.size(); ++group) {
    std::vector<BlockHash> hashes;
    for (const auto& [hash, places] : blocks_[group]) hashes.push_back(hash);
    for (const BlockHash& hash : hashes) Remove(group, hash, TierOf(event.medium));
  }
}

}  // namespace kvcast::router
