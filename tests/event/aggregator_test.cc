// The aggregator finds the events that all tensor-parallel workers have in common.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "kvcast/core/event_aggregator.h"

namespace kvcast {
namespace {

Event Stored(uint64_t hash, std::optional<int64_t> group = 0) {
  BlockStored event;
  event.block_hashes = {BlockHash::FromUnsigned(hash)};
  event.block_size = 16;
  event.group_idx = group;
  return event;
}

Event Removed(uint64_t hash) {
  BlockRemoved event;
  event.block_hashes = {BlockHash::FromUnsigned(hash)};
  return event;
}

EventAggregator Aggregator(int64_t workers) {
  auto aggregator = EventAggregator::Create(workers);
  EXPECT_TRUE(aggregator.ok()) << aggregator.status().ToString();
  return std::move(aggregator).value();
}

using Events = std::vector<Event>;

TEST(EventAggregator, CommonEventsAreThoseOfAllWorkersInOrderOfFirstAppearance) {
  EventAggregator aggregator = Aggregator(2);
  aggregator.Add(Events{Stored(3), Removed(1), Stored(2)});
  EXPECT_TRUE(aggregator.Common().empty());
  aggregator.Add(Events{Stored(2), Stored(9), Stored(3)});
  EXPECT_EQ(aggregator.Common(), (Events{Stored(3), Stored(2)}));
  EXPECT_EQ(aggregator.All(),
            (Events{Stored(3), Stored(3), Removed(1), Stored(2), Stored(2), Stored(9)}));
}

TEST(EventAggregator, EventsThatDifferInOneFieldAreNotTheSame) {
  EventAggregator aggregator = Aggregator(2);
  aggregator.Add(Events{Stored(1, 0)});
  aggregator.Add(Events{Stored(1, std::nullopt)});
  EXPECT_TRUE(aggregator.Common().empty());
}

TEST(EventAggregator, OneWorkerHasEverythingInCommon) {
  EventAggregator aggregator = Aggregator(1);
  aggregator.Add(Events{Stored(1), AllBlocksCleared(), Removed(1)});
  EXPECT_EQ(aggregator.Common(), (Events{Stored(1), AllBlocksCleared(), Removed(1)}));
}

// Common compares only counts. It leaves out an event that one worker lacks. A known weakness: if
// one worker repeats an event that all workers have, Common leaves out this event too.
TEST(EventAggregator, UncommonShowsTheEventsThatCommonLeavesOut) {
  EventAggregator aggregator = Aggregator(2);
  aggregator.Add(Events{Stored(1), Stored(2), Stored(3)});
  aggregator.Add(Events{Stored(1), Stored(3), Stored(3)});
  EXPECT_EQ(aggregator.Common(), Events{Stored(1)});
  EXPECT_EQ(aggregator.Uncommon(), (std::vector<CountedEvent>{{Stored(2), 1}, {Stored(3), 3}}));
}

TEST(EventAggregator, TwoCopiesFromOneWorkerCountAsTwoWorkers) {
  EventAggregator aggregator = Aggregator(2);
  aggregator.Add(Events{Stored(1), Stored(1)});
  EXPECT_EQ(aggregator.Common(), Events{Stored(1)});
}

TEST(EventAggregator, ClearForgetsTheEventsAndKeepsTheWorkers) {
  EventAggregator aggregator = Aggregator(2);
  aggregator.Add(Events{Stored(1), Stored(2)});
  aggregator.Clear();
  EXPECT_TRUE(aggregator.All().empty());
  EXPECT_TRUE(aggregator.Uncommon().empty());
  EXPECT_EQ(aggregator.num_workers(), 2);
  aggregator.Add(Events{Stored(2)});
  EXPECT_EQ(aggregator.All(), Events{Stored(2)});
}

TEST(EventAggregator, MoreWorkersRaiseTheCountThatIsCommon) {
  EventAggregator aggregator = Aggregator(1);
  aggregator.Add(Events{Stored(1)});
  EXPECT_EQ(aggregator.Common().size(), 1u);
  ASSERT_TRUE(aggregator.IncrementWorkers().ok());
  ASSERT_TRUE(aggregator.IncrementWorkers(2).ok());
  EXPECT_EQ(aggregator.num_workers(), 4);
  EXPECT_TRUE(aggregator.Common().empty());
  aggregator.ResetWorkers();
  EXPECT_EQ(aggregator.num_workers(), 1);
  EXPECT_EQ(aggregator.Common().size(), 1u);
}

TEST(EventAggregator, CountsOfWorkersThatAreNotPositiveAreRefused) {
  for (const int64_t workers : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    const auto none = EventAggregator::Create(workers);
    EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(none.status().message().find("num_workers"), std::string::npos);
    EventAggregator aggregator = Aggregator(3);
    EXPECT_EQ(aggregator.IncrementWorkers(workers).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(aggregator.num_workers(), 3);
  }
  EventAggregator aggregator = Aggregator(3);
  EXPECT_EQ(aggregator.IncrementWorkers(INT64_MAX).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(aggregator.num_workers(), 3);
}

TEST(EventAggregator, AddOfAllMergesAnotherAggregator) {
  EventAggregator first = Aggregator(2);
  first.Add(Events{Stored(1), Stored(2)});
  EventAggregator second = Aggregator(2);
  second.Add(Events{Stored(2), Stored(3)});
  first.Add(second.All());
  EXPECT_EQ(first.Common(), Events{Stored(2)});
  first.Add(first.All());
  EXPECT_EQ(first.Common(), (Events{Stored(1), Stored(3)}));
}

TEST(EventAggregator, KeepsItsEventsWhenItIsMoved) {
  EventAggregator first = Aggregator(2);
  for (uint64_t i = 0; i < 100; ++i) first.Add(Events{Stored(i)});
  EventAggregator second = std::move(first);
  for (uint64_t i = 100; i-- > 0;) second.Add(Events{Stored(i)});
  const Events common = second.Common();
  ASSERT_EQ(common.size(), 100u);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(common[i], Stored(i));
}

// Compares the aggregator with a list that is searched from the front. The batches are random, and
// have few distinct events.
TEST(EventAggregator, CountsLikeAListThatIsSearched) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    EventAggregator aggregator = Aggregator(3);
    std::vector<CountedEvent> list;
    for (int batch = 0; batch < 10; ++batch) {
      Events events;
      for (int i = 0; i < 20; ++i) {
        events.push_back(random() % 2 == 0 ? Stored(random() % 12) : Removed(random() % 12));
      }
      aggregator.Add(events);
      for (const Event& event : events) {
        size_t index = 0;
        while (index < list.size() && !(list[index].event == event)) ++index;
        if (index == list.size()) list.push_back({event, 0});
        ++list[index].count;
      }
      Events common;
      Events all;
      for (const CountedEvent& entry : list) {
        if (entry.count == 3) common.push_back(entry.event);
        all.insert(all.end(), static_cast<size_t>(entry.count), entry.event);
      }
      ASSERT_EQ(aggregator.Common(), common) << "seed " << seed;
      ASSERT_EQ(aggregator.All(), all) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kvcast
