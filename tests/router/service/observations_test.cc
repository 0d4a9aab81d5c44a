// Observations keep recent events and decisions, and return the events and decisions that a request
// selects.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/observations.h"

#include <gtest/gtest.h>

#include <memory>

#include "router/service/json/json_fields.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using testing::Batch;
using testing::Hashes;
using testing::Remove;
using testing::Store;
using testing::StoreIn;

struct ObservationsTest : ::testing::Test {
  ObservationsTest() {
    for (uint32_t id = 0; id < 2; ++id) {
      auto worker = std::make_shared<FleetWorker>();
      worker->id = WorkerId(id);
      worker->config.worker.name = id == 0 ? "a" : "b";
      fleet.workers.push_back(worker);
    }
  }
  void Note(size_t worker, uint64_t seq, const EventBatch& batch) {
    observations.Note(*fleet.workers[worker], {Seq(seq), batch, {}});
  }
  static HttpRequest Asking(std::map<std::string, std::string> query) {
    HttpRequest request;
    for (auto& [name, value] : query) request.query[name] = value;
    return request;
  }
  Json Events(const std::map<std::string, std::string>& query = {}) const {
    const HttpReply reply = observations.Events(Asking(query), fleet);
    EXPECT_EQ(reply.status, 200);
    return Json::parse(reply.body);
  }

  FleetList fleet;
  Observations observations;
};

TEST_F(ObservationsTest, EventsAreListedNewestFirst) {
  Note(0, 5, Batch(Store(Hashes(10, 3))));
  Note(1, 9, Batch(Remove(Hashes(20, 1), 2)));
  const Json events = Events();
  EXPECT_EQ(events["next"], 2);
  ASSERT_EQ(events["events"].size(), 2u);
  const Json& newest = events["events"][0];
  EXPECT_EQ(newest["worker"], "b");
  EXPECT_EQ(newest["seq"], 9);
  EXPECT_EQ(newest["type"], "removed");
  EXPECT_EQ(newest["group"], 2);
  EXPECT_EQ(newest["blocks"], 1);
  EXPECT_EQ(newest["first_hash"], "20");
  EXPECT_EQ(events["events"][1]["worker"], "a");
  EXPECT_EQ(events["events"][1]["blocks"], 3);
}

TEST_F(ObservationsTest, ANegativeHashKeepsItsSign) {
  Note(0, 5, Batch(Remove({BlockHash::FromSigned(-20)})));
  EXPECT_EQ(Events()["events"][0]["first_hash"], "-20");
}

TEST_F(ObservationsTest, NeighboursOfOneKindTierAndGroupInABatchAreOneEntry) {
  Note(0, 1,
       Batch(Remove(Hashes(1, 1)), Remove(Hashes(2, 1)), Remove(Hashes(3, 1), 1),
             Store(Hashes(4, 2), 1), StoreIn("CPU", Hashes(4, 2))));
  Note(0, 2, Batch(StoreIn("CPU", Hashes(6, 1))));
  const Json events = Events()["events"];
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["blocks"], 1);
  EXPECT_EQ(events[0]["seq"], 2);
  EXPECT_EQ(events[1]["tier"], "CPU");
  EXPECT_EQ(events[4]["blocks"], 2);
  EXPECT_EQ(events[4]["first_hash"], "1");
}

// TensorRT-LLM sends no time stamps.
TEST_F(ObservationsTest, ABatchWithoutATimeStampHasNoTime) {
  EventBatch batch = Batch(Store(Hashes(1, 1)));
  batch.ts = 0;
  Note(0, 1, batch);
  batch.ts = 7.5;
  Note(0, 2, batch);
  const Json events = Events()["events"];
  EXPECT_EQ(events[0]["time"], 7.5);
  EXPECT_EQ(events[1]["time"], nullptr);
}

TEST_F(ObservationsTest, AnEmptyBatchIsNoEntry) {
  Note(0, 1, EventBatch());
  EXPECT_EQ(Events()["next"], 0);
}

TEST_F(ObservationsTest, AnEventMustMatchAllFilters) {
  Note(0, 1,
       Batch(Store(Hashes(1, 1), 0), Store(Hashes(1, 1), 1), Remove(Hashes(1, 1), 1),
             StoreIn("CPU", Hashes(1, 1))));
  Note(1, 1, Batch(Store(Hashes(1, 1), 1)));
  EXPECT_EQ(Events({{"worker", "a"}})["events"].size(), 4u);
  EXPECT_EQ(Events({{"worker", "a"}, {"group", "1"}})["events"].size(), 2u);
  EXPECT_EQ(Events({{"group", "1"}, {"type", "stored"}})["events"].size(), 2u);
  EXPECT_EQ(Events({{"tier", "CPU"}})["events"].size(), 1u);
  EXPECT_EQ(Events({{"worker", "nobody"}})["events"].size(), 0u);
  EXPECT_EQ(Events({{"worker", ""}})["events"].size(), 5u);
  for (const char* name : {"type", "tier", "group"}) {
    EXPECT_EQ(Events({{name, "none"}})["events"].size(), 0u) << name;
    EXPECT_EQ(Events({{name, ""}})["events"].size(), 5u) << name;
  }
  EXPECT_EQ(Events({{"limit", "2"}})["events"].size(), 2u);
}

TEST_F(ObservationsTest, SinceSelectsNewEventsAndATooLargeNumberSelectsAllEvents) {
  for (uint64_t seq = 0; seq < 3; ++seq) Note(0, seq, Batch(Store(Hashes(seq, 1))));
  const Json second = Events({{"since", "2"}});
  ASSERT_EQ(second["events"].size(), 1u);
  EXPECT_EQ(second["events"][0]["seq"], 2);
  EXPECT_EQ(Events({{"since", "3"}})["events"].size(), 0u);
  EXPECT_EQ(Events({{"since", "1000"}})["events"].size(), 3u);
}

TEST_F(ObservationsTest, TheOldestEventsLeaveFirst) {
  for (uint64_t seq = 0; seq < Observations::kEventsMax + 10; ++seq) {
    Note(0, seq, Batch(Store(Hashes(seq, 1))));
  }
  const Json oldest = Events({{"since", "0"}, {"limit", "100000"}});
  EXPECT_EQ(oldest["next"], Observations::kEventsMax + 10);
  EXPECT_EQ(oldest["events"].size(), 500u);  // limit of one reply
  EXPECT_EQ(oldest["events"][0]["seq"], Observations::kEventsMax + 9);
}

TEST_F(ObservationsTest, TheFirstEventsOfALargeBatchAreCountedButNotKept) {
  EventBatch batch;
  for (uint64_t i = 0; i < Observations::kEventsMax + 10; ++i) {
    batch.events.emplace_back(i % 2 == 0 ? Event(Store(Hashes(i, 1)))
                                         : Event(Remove(Hashes(i, 1))));
  }
  Note(0, 1, Batch(Store(Hashes(1, 1))));
  Note(1, 2, batch);
  EXPECT_EQ(Events()["next"], Observations::kEventsMax + 11);
  EXPECT_EQ(Events({{"worker", "a"}})["events"].size(), 0u);
  EXPECT_EQ(Events({{"worker", "b"}})["events"][0]["type"], "removed");
}

TEST_F(ObservationsTest, EventsOfRemovedWorkersAreNotShown) {
  Note(0, 1, Batch(Store(Hashes(1, 1))));
  fleet.workers.erase(fleet.workers.begin());
  EXPECT_EQ(Events()["events"].size(), 0u);
}

TEST_F(ObservationsTest, BadNumbersAreRefused) {
  EXPECT_EQ(observations.Events(Asking({{"since", "x"}}), fleet).status, 400);
  EXPECT_EQ(observations.Events(Asking({{"limit", "-1"}}), fleet).status, 400);
  EXPECT_EQ(observations.Events(Asking({{"since", "99999999999999999999"}}), fleet).status, 400);
  EXPECT_EQ(observations.Decisions(Asking({{"since", "1x"}})).status, 400);
  EXPECT_EQ(observations.History(Asking({{"since", " 1"}})).status, 400);
}

TEST_F(ObservationsTest, OnlyTheLatestDecisionsAreKept) {
  for (size_t i = 0; i < Observations::kDecisionsMax + 5; ++i) {
    RouteDecision decision;
    decision.request_id = std::to_string(i);
    decision.candidates.emplace_back();
    observations.Note(decision, static_cast<double>(i));
  }
  const auto decisions_since = [this](const char* since) {
    return Json::parse(observations.Decisions(Asking({{"since", since}})).body);
  };
  const Json all = decisions_since("0");
  EXPECT_EQ(all["next"], Observations::kDecisionsMax + 5);
  ASSERT_EQ(all["decisions"].size(), Observations::kDecisionsMax);
  EXPECT_EQ(all["decisions"][0]["number"], 5);
  EXPECT_EQ(all["decisions"][0]["request_id"], "5");
  EXPECT_EQ(all["decisions"][0]["time"], 5.0);
  EXPECT_EQ(decisions_since("68")["decisions"].size(), 1u);
}

TEST_F(ObservationsTest, ADecisionOfALargeFleetKeepsTheCheapestCandidates) {
  constexpr size_t kWorkers = 1000;
  RouteDecision decision;
  decision.chosen = 3;
  for (size_t i = 0; i < kWorkers; ++i) {
    decision.candidates.emplace_back();
    decision.candidates.back().answer.name = std::to_string(i);
    decision.candidates.back().cost = static_cast<double>(kWorkers - i);
  }
  observations.Note(decision, 0);
  const Json decision_json = Json::parse(observations.Decisions(Asking({})).body)["decisions"][0];
  EXPECT_EQ(decision_json["worker"], "3");
  ASSERT_EQ(decision_json["candidates"].size(), Observations::kCandidatesMax);
  EXPECT_EQ(decision_json["candidates"][0]["name"], "999") << "the cheapest";
  EXPECT_EQ(decision_json["candidates"][62]["name"], "937");
  EXPECT_EQ(decision_json["candidates"][63]["name"], "3") << "the chosen candidate is kept";
}

}  // namespace
}  // namespace kvcast::router
