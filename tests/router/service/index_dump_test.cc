// GET /dump returns every block of the index once, in pieces of bounded size.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/index_dump.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "router/service/json/json_fields.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Hashes;
using kvcast::testing::Remove;
using kvcast::testing::StoreFull;
using kvcast::testing::StoreIn;

struct IndexDumpTest : ::testing::Test {
  IndexDumpTest() { core.fleet = Fleet::Create({}, core.index, {}).value(); }

  // No publisher listens at the endpoint. The test puts the worker's blocks into the index.
  WorkerId Add(const std::string& name, const std::string& model = "m") {
    WorkerRegistration source;
    source.worker.name = name;
    source.model = model;
    source.endpoint = "tcp://127.0.0.1:1";
    EXPECT_TRUE(core.fleet->Add(source).ok());
    return core.fleet->view()->Find(name)->id;
  }
  std::string Text(const HttpRequest& request = {}, size_t entries_max = kDumpEntriesMax) {
    const HttpReply reply = DumpIndex(core, request, entries_max);
    EXPECT_EQ(reply.status, 200);
    std::string text = reply.body;
    for (std::string piece = reply.next_piece(); !piece.empty(); piece = reply.next_piece()) {
      EXPECT_LE(piece.size(), 80u << 10);
      text += piece;
    }
    return text;
  }
  Json Dump(const HttpRequest& request = {}) { return Json::parse(Text(request)); }

  ServiceCore core;
};

TEST_F(IndexDumpTest, BlocksAreWrittenAsStoreEvents) {
  const WorkerId worker = Add("a");
  core.index.Apply(worker, Batch(StoreFull(Hashes(5, 1), 2)));
  const Json dump = Dump();
  EXPECT_EQ(dump, Json::parse(R"({"m:default": {"block_size": 16, "events": [
      {"worker_id": "a", "dp_rank": 0, "medium": "GPU", "group_idx": 2,
       "event": {"event_id": 0, "dp_rank": 0,
         "data": {"stored": {"parent_hash": null, "blocks": [{"block_hash": 5}]}}}}]}})"));
}

TEST_F(IndexDumpTest, AnEventHoldsBlocksOfOneGroupAndTier) {
  const WorkerId worker = Add("a");
  core.index.Apply(worker, Batch(StoreFull(Hashes(1, 3), 0), StoreFull(Hashes(1, 2), 1),
                                 StoreIn("CPU", Hashes(9, 1))));
  std::set<std::string> groups;
  const Json dump = Dump();
  for (const Json& event : dump["m:default"]["events"]) {
    const Json& blocks = event["event"]["data"]["stored"]["blocks"];
    groups.insert(event["medium"].get<std::string>() + event["group_idx"].dump() + " " +
                  std::to_string(blocks.size()));
  }
  EXPECT_EQ(groups, (std::set<std::string>{"GPU0 3", "GPU1 2", "CPU0 1"}));
}

TEST_F(IndexDumpTest, OmitsRemovedBlocks) {
  const WorkerId worker = Add("a");
  core.index.Apply(worker, Batch(StoreFull(Hashes(1, 2), 0), Remove(Hashes(1, 1))));
  const Json blocks = Dump()["m:default"]["events"][0]["event"]["data"]["stored"]["blocks"];
  EXPECT_EQ(blocks, Json::parse(R"([{"block_hash": 2}])"));
}

TEST_F(IndexDumpTest, WritesHashesOfEveryFormAndNumbersOfCopies) {
  const WorkerId worker = Add("a");
  const uint8_t bytes[] = {0xab, 0x00, 0xff};
  const BlockHash forms[] = {BlockHash::FromUnsigned(~uint64_t{0}), BlockHash::FromSigned(-7),
                             BlockHash::FromBytes(bytes)};
  for (const BlockHash& hash : forms) core.index.Apply(worker, Batch(StoreFull({hash}, 0)));
  core.index.Apply(worker, Batch(StoreFull({forms[1]}, 0)));
  std::set<std::string> blocks;
  const Json dump = Dump();
  for (const Json& block : dump["m:default"]["events"][0]["event"]["data"]["stored"]["blocks"]) {
    blocks.insert(block.dump());
  }
  EXPECT_EQ(blocks, (std::set<std::string>{R"({"block_hash":18446744073709551615})",
                                           R"({"block_hash":-7,"copies":2})",
                                           R"({"block_hash":"ab00ff"})"}));
}

TEST_F(IndexDumpTest, WorkersOfOneModelAndRoutingGroupAreTogether) {
  const WorkerId a = Add("a");
  const WorkerId b = Add("b");
  const WorkerId other = Add("other", "n");
  Add("empty", "o");
  for (const WorkerId worker : {a, b, other}) {
    core.index.Apply(worker, Batch(StoreFull(Hashes(1, 1), 0)));
  }
  const Json dump = Dump();
  ASSERT_EQ(dump.size(), 3u);
  std::set<Json> workers;
  std::set<int> numbers;
  for (const auto& [scope, held] : dump.items()) {
    for (const Json& event : held["events"]) {
      workers.insert(event["worker_id"]);
      numbers.insert(event["event"]["event_id"].get<int>());
    }
  }
  EXPECT_EQ(workers, (std::set<Json>{"a", "b", "other"}));
  EXPECT_EQ(numbers, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(dump["m:default"]["events"].size(), 2u);
  EXPECT_EQ(dump["o:default"], Json::parse(R"({"block_size": 0, "events": []})"));
  EXPECT_EQ(Dump({.query = {{"model_name", "n"}}}).size(), 1u);
  EXPECT_EQ(Dump({.query = {{"routing_group", "nobody"}}}), Json::object());
}

TEST_F(IndexDumpTest, IsAnEmptyObjectWithoutWorkers) { EXPECT_EQ(Text(), "{}\n"); }

// If a worker holds entries_max entries or more, the dump reads the worker in slices. Each
// entry is in exactly one slice.
TEST_F(IndexDumpTest, ALargeWorkerIsReadInSlices) {
  const WorkerId worker = Add("a");
  core.index.Apply(worker, Batch(StoreFull(Hashes(1, 5000), 0), StoreFull(Hashes(1, 5000), 1)));
  for (const size_t entries_max : {size_t{1000}, size_t{9999}, size_t{10000}, size_t{1} << 20}) {
    const Json dump = Json::parse(Text({}, entries_max));
    std::multiset<std::pair<int, int>> blocks;
    for (const Json& event : dump["m:default"]["events"]) {
      for (const Json& block : event["event"]["data"]["stored"]["blocks"]) {
        blocks.emplace(event["group_idx"], block["block_hash"]);
      }
    }
    ASSERT_EQ(blocks.size(), 10000u) << entries_max;
    EXPECT_EQ(std::set(blocks.begin(), blocks.end()).size(), 10000u) << entries_max;
  }
}

// The index's hash tables have a secret seed in each process. If all dumps had the same order, the
// slices would show which hashes are close to each other in these tables.
TEST_F(IndexDumpTest, EachDumpHasSlicesOfItsOwn) {
  const WorkerId worker = Add("a");
  core.index.Apply(worker, Batch(StoreFull(Hashes(1, 5000), 0)));
  EXPECT_NE(Text({}, 1000), Text({}, 1000));
}

TEST_F(IndexDumpTest, SecondConcurrentDumpGets503) {
  {
    const HttpReply first = DumpIndex(core, {});
    EXPECT_EQ(DumpIndex(core, {}).status, 503);
    EXPECT_EQ(DumpIndex(core, {}).body, "{\"error\":\"another dump is in progress\"}\n");
  }
  EXPECT_EQ(DumpIndex(core, {}).status, 200);
}

// A worker that leaves during the dump holds no blocks from then on. The document still ends
// correctly.
TEST_F(IndexDumpTest, AWorkerMayLeave) {
  Add("a");
  const WorkerId worker = Add("b");
  core.index.Apply(worker, Batch(StoreFull(Hashes(1, 3), 0)));
  const HttpReply reply = DumpIndex(core, {});
  ASSERT_TRUE(core.fleet->Remove("b").ok());
  EXPECT_EQ(Json::parse(reply.next_piece()),
            Json::parse(R"({"m:default": {"block_size": 0, "events": []}})"));
}

}  // namespace
}  // namespace kvcast::router
