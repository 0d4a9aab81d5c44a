// SPDX-License-Identifier: Apache-2.0
#include "src/offload/connector/chunk_describer.h"

#include "src/base/check.h"

namespace kvcast::offload {

ChunkRecord ChunkDescriber::Record(const RequestState& state, int64_t begin, int64_t end,
                                   int64_t block_size, bool last_only) const {
  const CacheRequest& request = *state.request;
  const int64_t hash_block_size = layout_.tokens_per_hash;
  KV_CHECK(end <= std::ssize(request.tokens) && end / hash_block_size <= std::ssize(request.chain));
  ChunkRecord record;
  for (int64_t block_end = last_only ? end : begin + block_size; block_end <= end;
       block_end += block_size) {
    record.hashes.push_back(BlockDigest(request.chain, block_end / hash_block_size - 1, 1));
  }
  if (begin > 0) record.parent = BlockDigest(request.chain, begin / hash_block_size - 1, 1);
  record.tokens.assign(request.tokens.begin() + begin, request.tokens.begin() + end);
  record.block_size = block_size;
  record.lora_id = request.lora_id;
  record.lora_name = request.hash_inputs.lora_name;
  if (plain_) return record;
  auto& keys = record.extra_keys.emplace(record.hashes.size());
  if (request.hash_inputs.empty()) return record;
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t block_end = end - static_cast<int64_t>(keys.size() - 1 - i) * block_size;
    ExtraKeys extra = ExtraKeysFor(request.hash_inputs, block_end - block_size, block_end);
    if (!extra.empty()) keys[i] = std::move(extra);
  }
  return record;
}

ChunkRecord ChunkDescriber::Chunk(const RequestState& state, size_t group, int64_t chunk) const {
  const OffloadGroup& rules = layout_.groups[group];
  const int64_t begin = chunk * rules.tokens_per_chunk;
  // A chunk of states may lack all states except the state at its end, so only that state is
  // announced.
  return Record(state, begin, begin + rules.tokens_per_chunk, rules.tokens_per_block,
                rules.requires_cow_source);
}

ChunkRecord ChunkDescriber::Tail(const RequestState& state, size_t group, int64_t boundary) const {
  const OffloadGroup& rules = layout_.groups[group];
  const int64_t begin = (boundary - 1) / rules.tokens_per_block * rules.tokens_per_block;
  return Record(state, begin, boundary, layout_.tokens_per_hash, rules.requires_cow_source);
}

}  // namespace kvcast::offload
