// The fleet follows exactly the sources of a list. Sources that clients have added do not change.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/source_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/service/ingest/fleet.h"

namespace kvcast::router {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// The properties that the tests change.
std::string TextOf(const WorkerRegistration& source) {
  return source.worker.name + " " + source.endpoint + " " + source.model + " " +
         std::to_string(source.data_parallel_size);
}

// No publisher runs at this endpoint.
WorkerRegistration Source(const std::string& name, const std::string& model = "m") {
  WorkerRegistration source;
  source.worker.name = name;
  source.model = model;
  source.endpoint = "tcp://127.0.0.1:9";
  return source;
}

WorkerRegistration WithEndpoint(WorkerRegistration source, std::string endpoint) {
  source.endpoint = std::move(endpoint);
  return source;
}

struct SourceSetTest : ::testing::Test {
  SourceSetTest() {
    fleet = Fleet::Create({}, index, {}, {.workers = 4}).value();
    set = std::make_unique<SourceSet>(*fleet, SourcePolicy(), "file", TextOf);
  }
  SourceSet::Changes Follow(std::vector<WorkerRegistration> sources) {
    EXPECT_TRUE(set->Set(std::move(sources)).ok());
    return set->Follow();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    const FleetView view = fleet->view();
    for (const auto& worker : view->workers) names.push_back(worker->config.worker.name);
    return names;
  }
  // Returns the id of the worker. If the fleet has no worker of this name, returns an id that no
  // worker has.
  WorkerId IdOf(const std::string& name) const {
    const auto worker = fleet->view()->Find(name);
    return worker == nullptr ? WorkerId(~0u) : worker->id;
  }
  std::string ModelOf(const std::string& name) const {
    const auto worker = fleet->view()->Find(name);
    return worker == nullptr ? "no worker" : worker->config.model;
  }
  static std::vector<std::string> Messages(const SourceSet::Changes& changes) {
    std::vector<std::string> messages;
    for (const Status& status : changes.errors) messages.push_back(status.message());
    return messages;
  }

  PrefixIndex index;
  std::unique_ptr<Fleet> fleet;
  std::unique_ptr<SourceSet> set;
};

TEST_F(SourceSetTest, SourcesAreFollowedInTheOrderOfTheList) {
  const auto changes = Follow({Source("b"), Source("a")});
  EXPECT_EQ(changes.added, 2u);
  EXPECT_EQ(changes.removed, 0u);
  EXPECT_THAT(Names(), ElementsAre("b", "a"));
  EXPECT_EQ(set->followed(), 2u);
}

TEST_F(SourceSetTest, ANewListAddsAndRemovesOnlyTheDifferences) {
  Follow({Source("a"), Source("b")});
  const WorkerId kept = IdOf("b");
  const auto changes = Follow({Source("b"), Source("c")});
  EXPECT_EQ(changes.added, 1u);
  EXPECT_EQ(changes.removed, 1u);
  EXPECT_THAT(Names(), UnorderedElementsAre("b", "c"));
  EXPECT_EQ(IdOf("b"), kept);  // the worker keeps its blocks
}

TEST_F(SourceSetTest, ASourceWithOtherPropertiesIsReplaced) {
  Follow({Source("a")});
  const WorkerId before = IdOf("a");
  const auto changes = Follow({Source("a", "other")});
  EXPECT_EQ(changes.added, 1u);
  EXPECT_EQ(changes.removed, 1u);
  EXPECT_NE(IdOf("a"), before);
  EXPECT_EQ(ModelOf("a"), "other");
}

TEST_F(SourceSetTest, ASourceThatIsNotAllowedDoesNotReplaceTheFollowedSource) {
  Follow({Source("a")});
  const WorkerId before = IdOf("a");
  // Beyond loopback, a source needs a key or `insecure`.
  const auto changes = Follow({WithEndpoint(Source("a"), "tcp://192.0.2.1:5557"), Source("b")});
  EXPECT_EQ(changes.errors.size(), 1u);
  EXPECT_EQ(changes.removed, 0u);
  EXPECT_EQ(IdOf("a"), before);
  EXPECT_THAT(Names(), UnorderedElementsAre("a", "b"));
}

TEST_F(SourceSetTest, AListWithTwoSourcesOfOneNameIsRefused) {
  Follow({Source("a")});
  const Status status = set->Set({Source("b"), Source("b", "other")});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "two sources are named b");
  EXPECT_EQ(set->Follow().removed, 0u);
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(SourceSetTest, ASourceOfAClientStaysUntilTheClientRemovesIt) {
  ASSERT_TRUE(fleet->Add(Source("a", "client"), AddedBy::kClient).ok());
  const WorkerId client = IdOf("a");
  EXPECT_THAT(Messages(Follow({Source("a")})), ElementsAre("a worker named a exists already"));
  EXPECT_EQ(IdOf("a"), client);
  Follow({});
  EXPECT_THAT(Names(), ElementsAre("a"));
  Follow({Source("a")});
  ASSERT_TRUE(fleet->Remove("a").ok());
  EXPECT_EQ(set->Follow().added, 1u);
  EXPECT_EQ(ModelOf("a"), "m");
}

TEST_F(SourceSetTest, ASourceThatAClientRemovesIsAddedAgain) {
  Follow({Source("a")});
  ASSERT_TRUE(fleet->Remove("a").ok());
  const auto changes = set->Follow();
  EXPECT_EQ(changes.added, 1u);
  EXPECT_THAT(Names(), ElementsAre("a"));
}

// The client's worker has the name of a source of the list, but not its id.
TEST_F(SourceSetTest, AClientsWorkerInThePlaceOfARemovedSourceStays) {
  Follow({Source("a")});
  ASSERT_TRUE(fleet->Remove("a").ok());
  ASSERT_TRUE(fleet->Add(Source("a", "client"), AddedBy::kClient).ok());
  EXPECT_THAT(Messages(set->Follow()), ElementsAre("a worker named a exists already"));
  Follow({});
  EXPECT_EQ(ModelOf("a"), "client");
}

TEST_F(SourceSetTest, ARetryTriesOnlyTheSourcesWithErrors) {
  ASSERT_TRUE(fleet->Add(Source("a", "client"), AddedBy::kClient).ok());
  EXPECT_EQ(Follow({Source("a"), Source("b")}).errors.size(), 1u);
  ASSERT_TRUE(fleet->Remove("b").ok());
  EXPECT_THAT(Messages(set->Retry()), ElementsAre("a worker named a exists already"));
  ASSERT_TRUE(fleet->Remove("a").ok());
  EXPECT_EQ(set->Retry().added, 1u);
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_EQ(ModelOf("a"), "m");
  ASSERT_TRUE(fleet->Remove("a").ok());
  EXPECT_EQ(set->Retry().added, 0u);
  Follow({});
  EXPECT_EQ(set->Retry().added, 0u);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(SourceSetTest, AllRanksOfASourceComeAndGo) {
  WorkerRegistration source = Source("a");
  source.data_parallel_size = 2;
  Follow({source});
  EXPECT_THAT(Names(), ElementsAre("a-dp0", "a-dp1"));
  ASSERT_TRUE(fleet->Remove("a-dp1").ok());
  EXPECT_EQ(set->Follow().added, 1u);
  EXPECT_THAT(Names(), ElementsAre("a-dp0", "a-dp1"));
  Follow({});
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(SourceSetTest, ASourceThatDoesNotFitIsAddedWhenThereIsRoom) {
  const std::vector<WorkerRegistration> four = {Source("a"), Source("b"), Source("c"), Source("d")};
  Follow(four);
  std::vector<WorkerRegistration> five = four;
  five.push_back(Source("e"));
  EXPECT_THAT(Messages(Follow(five)), ElementsAre("max_sources: at most 4 workers are followed"));
  five.erase(five.begin());
  // Removals come before additions.
  EXPECT_THAT(Messages(Follow(five)), IsEmpty());
  EXPECT_THAT(Names(), UnorderedElementsAre("b", "c", "d", "e"));
}

}  // namespace
}  // namespace kvcast::router
