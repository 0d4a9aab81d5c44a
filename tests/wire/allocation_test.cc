// The number of received bytes bounds the memory that the decoder allocates. Declared lengths do
// not raise this bound. If the same payload is decoded again into the same batch object, the
// decoder allocates memory only for extra keys and long texts.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/counting_new.h"
#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

// All bytes that decoding allocated, including freed bytes.
size_t BytesAllocatedBy(std::span<const uint8_t> payload) {
  EventBatch batch;
  DecodeCounts counts;
  const size_t before = AllocatedBytes();
  const Status status = DecodeBatch(payload, WireLimits(), batch, counts);
  (void)status.ok();
  return AllocatedBytes() - before;
}

size_t MaxAllocatedBytes(size_t received_bytes) { return 2 * received_bytes + 64 * 1024; }

// Payloads that end with a MessagePack head. The head declares `count16` (2 bytes, hex) or
// `count32` (4 bytes, hex) elements or bytes.
std::vector<Payload> PayloadsWithLargeCounts(const std::string& count16,
                                             const std::string& count32) {
  const Payload batch = FromHex("93 cb3ff8000000000000");
  const Payload stored = batch + FromHex("91 9c") + Text("BlockStored");
  const Payload keys = stored + FromHex("90 c0 90 01 c0 c0 c0");
  std::vector<Payload> payloads;
  for (const std::string& count : {"dc" + count16, "dd" + count32}) {
    payloads.push_back(FromHex(count));
    payloads.push_back(batch + FromHex(count));
    payloads.push_back(batch + FromHex("91" + count));
    payloads.push_back(stored + FromHex(count));
    payloads.push_back(stored + FromHex("90 c0" + count));
    payloads.push_back(stored + FromHex("90 c0" + count + "92 01 02"));
    payloads.push_back(keys + FromHex(count));
    payloads.push_back(keys + FromHex("91" + count));
    payloads.push_back(keys + FromHex("91 91" + count));
  }
  for (const std::string& count : {"de" + count16, "df" + count32}) {
    payloads.push_back(FromHex(count));
    payloads.push_back(batch + FromHex("91" + count));
    payloads.push_back(stored + FromHex("90 c0 90 01 c0 c0" + count));
  }
  for (const std::string& length : {"c5" + count16, "c6" + count32, "da" + count16, "db" + count32,
                                    "c8" + count16, "c9" + count32}) {
    payloads.push_back(stored + FromHex("91" + length));
    payloads.push_back(keys + FromHex("91 91" + length));
  }
  return payloads;
}

TEST(Allocation, DeclaredLengthsWithoutDataAllocateLittle) {
  for (const auto& [count16, count32] :
       {std::pair{"ffff", "ffffffff"}, std::pair{"ffff", "00010000"}, {"8000", "7fffffff"}}) {
    for (const Payload& payload : PayloadsWithLargeCounts(count16, count32)) {
      EXPECT_LE(BytesAllocatedBy(payload), MaxAllocatedBytes(payload.size())) << ToHex(payload);
      EXPECT_FALSE(Decode(payload).status.ok()) << ToHex(payload);
    }
  }
}

// After each head, the payload has 100,000 MessagePack extension values (fixext 1). No field of an
// event has this type.
TEST(Allocation, DeclaredLengthsWithTheWrongDataAllocateLittle) {
  for (Payload payload : PayloadsWithLargeCounts("ffff", "00010000")) {
    payload.resize(payload.size() + 300000, 0xd4);
    EXPECT_LE(BytesAllocatedBy(payload), MaxAllocatedBytes(payload.size()))
        << ToHex(std::span(payload).first(40));
  }
}

TEST(Allocation, CutPayloadsAllocateLittle) {
  for (const Payload& payload : GoodPayloads()) {
    for (size_t size = 0; size < payload.size(); size += 7) {
      ASSERT_LE(BytesAllocatedBy(std::span(payload).first(size)), MaxAllocatedBytes(size));
    }
  }
}

TEST(Allocation, DecodingTheSamePayloadAgainAllocatesNoMemory) {
  EventBatch batch = BatchOf(FullStored());
  // Each decoding allocates the extra keys, and a text that does not fit into std::string itself.
  std::get<BlockStored>(batch.events[0]).extra_keys.reset();
  std::get<BlockStored>(batch.events[0]).lora_name = "short";
  const Payload payload = Encode(batch);
  EventBatch decoded;
  DecodeCounts counts;
  ASSERT_TRUE(DecodeBatch(payload, WireLimits(), decoded, counts).ok());
  const size_t before = AllocatedBytes();
  ASSERT_TRUE(DecodeBatch(payload, WireLimits(), decoded, counts).ok());
  EXPECT_EQ(AllocatedBytes(), before);
}

}  // namespace
}  // namespace kvcast::wire
