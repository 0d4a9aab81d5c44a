// Each attack of `kvcast bench hostile` consists of batches that the router's decoder accepts.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/hostile_batches.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kvcast/wire/wire.h"

namespace kvcast::tools {
namespace {

// The decoder accepts the batches. Exception: it leaves out the event of large-batches, which
// attacks only by its size.
TEST(HostileBatches, AreAcceptedByTheDecoder) {
  for (const Attack& attack : Attacks()) {
    for (const uint64_t round : {uint64_t{0}, attack.prepared, attack.prepared + 1}) {
      const EventBatch batch = attack.batch(round);
      std::vector<uint8_t> payload;
      ASSERT_TRUE(EncodeBatch(batch, Dialect::kKvcast1, payload).ok()) << attack.name;
      EventBatch decoded;
      DecodeCounts counts;
      const Status status = DecodeBatch(payload, WireLimits(), {}, decoded, counts);
      ASSERT_TRUE(status.ok()) << attack.name << ": " << status.ToString();
      // An event of large-batches has more than 1 Mi tokens, so the decoder leaves it out.
      const bool tokens_fit = attack.name != "large-batches";
      EXPECT_EQ(decoded.events.size(), tokens_fit ? batch.events.size() : 0) << attack.name;
    }
  }
}

TEST(HostileBatches, HaveUniqueNames) {
  std::set<std::string_view> names;
  for (const Attack& attack : Attacks()) {
    EXPECT_TRUE(names.insert(attack.name).second) << attack.name;
    EXPECT_EQ(FindAttack(attack.name), &attack);
  }
  EXPECT_EQ(FindAttack("none"), nullptr);
}

TEST(HostileBatches, AreEqualWhereTheyAreConstant) {
  for (const Attack& attack : Attacks()) {
    if (!attack.constant) continue;
    const EventBatch batch = attack.batch(attack.prepared + 1);
    EXPECT_TRUE(batch == attack.batch(attack.prepared + 2)) << attack.name;
  }
}

}  // namespace
}  // namespace kvcast::tools
