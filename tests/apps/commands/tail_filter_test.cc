// The tail filter keeps the events that its options select. Each topic that can match begins with
// the filter's subscription prefix.
// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/tail_filter.h"

#include <gtest/gtest.h>

#include "router/service/relay/relay_topic.h"
#include "tests/support/index_events.h"

namespace kvcast::tools {
namespace {

using testing::Batch;
using testing::Hashes;
using testing::Remove;
using testing::Store;
using testing::StoreIn;

std::string TopicOf(const std::string& model, const std::string& worker, int64_t rank) {
  return router::FormatTopic({model, worker, rank, "GPU", 0});
}

TEST(TailFilter, UnsetMembersMatchEverything) {
  EventBatch batch = Batch(Store(Hashes(1, 1)));
  EXPECT_TRUE(TailFilter().Keep("", batch));
  EXPECT_EQ(batch.events.size(), 1u);
  EventBatch heartbeat;
  EXPECT_TRUE(TailFilter().Keep("", heartbeat));
  EXPECT_FALSE(TailFilter{.group = 0}.Keep("", heartbeat));
}

TEST(TailFilter, ModelAndWorkerAreReadFromTheTopic) {
  const TailFilter filter{.model = "llama 3.1", .worker = "w.1"};
  EventBatch batch = Batch(Store(Hashes(1, 1)));
  EXPECT_TRUE(filter.Keep(TopicOf("llama 3.1", "w.1", 0), batch));
  EXPECT_FALSE(filter.Keep(TopicOf("llama 3.1", "w.2", 0), batch));
  EXPECT_FALSE(filter.Keep(TopicOf("llama", "w.1", 0), batch));
  EXPECT_FALSE(filter.Keep("another topic", batch));
}

TEST(TailFilter, TheRankComesFromTheTopicOrFromTheBatch) {
  const TailFilter filter{.rank = 3};
  EventBatch batch = Batch(Store(Hashes(1, 1)));
  EXPECT_FALSE(filter.Keep("", batch));
  batch.data_parallel_rank = 3;
  EXPECT_TRUE(filter.Keep("", batch));
  EXPECT_TRUE(filter.Keep(TopicOf("m", "w", 3), batch));
  EXPECT_FALSE(filter.Keep(TopicOf("m", "w", 0), batch));
}

TEST(TailFilter, TierAndGroupFilterSingleEvents) {
  const auto events = [] {
    return Batch(Store(Hashes(1, 1), 0), Store(Hashes(2, 1), 1), StoreIn("CPU", Hashes(3, 1)),
                 Remove(Hashes(4, 1), std::nullopt), AllBlocksCleared());
  };
  EventBatch batch = events();
  EXPECT_TRUE((TailFilter{.tier = "cpu"}.Keep("", batch)));
  EXPECT_EQ(batch.events.size(), 1u);
  batch = events();
  EXPECT_TRUE((TailFilter{.group = 1}.Keep("", batch)));
  EXPECT_EQ(batch.events.size(), 2u);  // a clear belongs to all groups
  batch = events();
  EXPECT_TRUE((TailFilter{.tier = "GPU", .group = 0}.Keep("", batch)));
  EXPECT_EQ(batch.events.size(), 3u);
  batch = events();
  EXPECT_FALSE((TailFilter{.tier = "STORAGE"}.Keep("", batch)));
}

TEST(TailFilter, ThePrefixExcludesNoTopicThatCanMatch) {
  EXPECT_EQ(TailFilter().Prefix(), "");
  EXPECT_EQ((TailFilter{.rank = 1}.Prefix()), "");
  EXPECT_EQ((TailFilter{.worker = "w"}.Prefix()), "kv.");
  EXPECT_EQ((TailFilter{.model = "a.b"}.Prefix()), "kv.a%2Eb.");
  EXPECT_EQ((TailFilter{.model = "m", .worker = "w"}.Prefix()), "kv.m.w.");
  EXPECT_EQ((TailFilter{.model = "m", .worker = "w", .rank = 2}.Prefix()), "kv.m.w.2.");
  const std::string topic = TopicOf("a.b", "w", 2);
  EXPECT_TRUE(topic.starts_with((TailFilter{.model = "a.b", .worker = "w", .rank = 2}.Prefix())));
}

}  // namespace
}  // namespace kvcast::tools
