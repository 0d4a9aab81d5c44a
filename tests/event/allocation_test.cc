// Hashing an event allocates no memory, whatever fields the event has.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kvcast/core/event_identity.h"
#include "tests/support/counting_new.h"

namespace kvcast {
namespace {

TEST(EventHashAllocation, HashingAllocatesNoMemory) {
  BlockStored stored;
  const std::vector<uint8_t> long_hash(64, 7);
  stored.block_hashes.assign(64, BlockHash::FromBytes(long_hash));
  stored.token_ids.emplace(1024, 5);
  stored.lora_name = "a name that is longer than a short string holds";
  stored.extra_keys.emplace(64, ExtraKeys{ExtraKey::Item("an identifier of some length", 3)});
  stored.metadata = {{"key", ExtraKey{ExtraKeyList{{ExtraKey::Int(1), ExtraKey::Text("two")}}}}};
  const Event event = stored;
  const size_t before = wire::AllocatedBytes();
  const size_t hash = EventHash()(event);
  EXPECT_EQ(wire::AllocatedBytes(), before);
  EXPECT_NE(hash, 0u);
}

}  // namespace
}  // namespace kvcast
