// SPDX-License-Identifier: Apache-2.0
#include "tests/wire/support.h"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/source_dir.h"

namespace kvcast::wire {

Payload FromHex(std::string_view hex) {
  std::string digits;
  for (const char c : hex) {
    if (std::isxdigit(static_cast<unsigned char>(c)) != 0) digits.push_back(c);
  }
  Payload bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string ToHex(std::span<const uint8_t> bytes) {
  std::string hex;
  for (const uint8_t byte : bytes) {
    hex.push_back("0123456789abcdef"[byte >> 4]);
    hex.push_back("0123456789abcdef"[byte & 15]);
  }
  return hex;
}

Payload operator+(Payload left, std::span<const uint8_t> right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Payload Text(std::string_view text) {
  Payload bytes{static_cast<uint8_t>(0xa0 | text.size())};
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

std::string VectorPath(const std::string& name) {
  return (SourceDir() / "schemas" / "vectors" / name).string();
}

std::vector<std::string> VectorLines(const std::string& name) {
  std::ifstream file(VectorPath(name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  EXPECT_FALSE(lines.empty()) << name;
  return lines;
}

std::vector<Payload> GoodPayloads() {
  std::vector<Payload> payloads;
  for (const std::string& line : VectorLines("good.jsonl")) {
    payloads.push_back(FromHex(nlohmann::json::parse(line).at("hex").get<std::string>()));
  }
  return payloads;
}

Decoded Decode(std::span<const uint8_t> payload, const WireLimits& limits) {
  Decoded decoded;
  decoded.status = DecodeBatch(payload, limits, decoded.batch, decoded.counts);
  return decoded;
}

Payload Encode(const EventBatch& batch, Dialect dialect) {
  Payload payload;
  const Status status = EncodeBatch(batch, dialect, payload);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return payload;
}

BlockStored FullStored() {
  BlockStored event;
  event.block_hashes = {BlockHash::FromUnsigned(11), BlockHash::FromUnsigned(12)};
  event.parent_block_hash = BlockHash::FromUnsigned(10);
  event.token_ids = {1, 2, 3, 4, 5, 6, 7, 8};
  event.block_size = 4;
  event.lora_id = 3;
  event.medium = kMediumGpu;
  event.lora_name = "adapter";
  event.extra_keys = ExtraKeyEntries{ExtraKeys{ExtraKey::Text("adapter")}, std::nullopt};
  event.group_idx = 1;
  event.kv_cache_spec_kind = "sliding_window";
  event.kv_cache_spec_sliding_window = 128;
  event.locality = "LOCAL";
  event.ownership = "tier-2";
  event.session_id = "session";
  event.lookahead = LookaheadTokens{1, {5, 9}};
  return event;
}

EventBatch BatchOf(Event event) {
  EventBatch batch;
  batch.ts = 1.5;
  batch.data_parallel_rank = 0;
  batch.events.push_back(std::move(event));
  return batch;
}

}  // namespace kvcast::wire
