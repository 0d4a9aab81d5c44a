// The service follows the sources of files. While a file is unusable, the service keeps the sources
// of the latest valid content.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/source_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "router/service/api/source_json.h"
#include "router/service/router_service.h"
#include "tests/router/service/event_server.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/index_events.h"
#include "tests/support/log_lines.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Hashes;
using kvcast::testing::LogLines;
using kvcast::testing::StoreFull;
using Json = nlohmann::json;
using stream::Eventually;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// No publisher runs at this endpoint.
Json Listed(const std::string& name) { return {{"name", name}, {"endpoint", "tcp://127.0.0.1:9"}}; }

std::string ListOf(const std::vector<Json>& sources) { return Json({{"sources", sources}}).dump(); }

struct SourceFilesTest : ::testing::Test {
  SourceFilesTest() {
    options.log = &lines.log();
    options.source_files = {folder.File("sources.json")};
  }
  void Write(const std::string& text) { folder.Write("sources.json", text); }
  void Start() {
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const WorkerReport& worker : service->workers()) names.push_back(worker.name);
    return names;
  }
  bool Await(const std::vector<std::string>& names) const {
    return Eventually([&] { return Names() == names; });
  }
  httplib::Result Get(const std::string& path) const {
    return httplib::Client("127.0.0.1", service->http_port()).Get(path);
  }
  // The value of a metric of the file.
  std::string Metric(const std::string& name) const {
    const std::string page = Get("/metrics")->body;
    const size_t at = page.find("\n" + name + "{file=");
    if (at == std::string::npos) return "none";
    const size_t value = page.find("} ", at) + 2;
    return page.substr(value, page.find('\n', value) - value);
  }
  bool AwaitLine(const std::vector<std::string>& texts) {
    return Eventually([&] { return !lines.With(texts).empty(); });
  }

  stream::TemporaryFolder folder;
  LogLines lines;
  RouterOptions options;
  std::unique_ptr<RouterService> service;
};

TEST_F(SourceFilesTest, AChangedFileAddsAndRemovesSources) {
  Write(ListOf({Listed("a"), Listed("b")}));
  Start();
  EXPECT_THAT(Names(), ElementsAre("a", "b"));  // read before Start returns
  Write(ListOf({Listed("b"), Listed("c")}));
  EXPECT_TRUE(Await({"b", "c"}));
  ASSERT_TRUE(AwaitLine({"info source_added source=c by=file "}));
  ASSERT_TRUE(AwaitLine({"info source_removed source=a by=file"}));
  ASSERT_TRUE(AwaitLine({"info source_file_read source=", "sources=2 added=1 removed=1"}));
  EXPECT_TRUE(Eventually([&] { return Metric("kvcast_source_file_sources") == "2"; }));
  EXPECT_EQ(Metric("kvcast_source_file_errors"), "0");
}

TEST_F(SourceFilesTest, ASourceThatStaysInTheFileKeepsItsBlocks) {
  const auto publisher = stream::MakePublisher(stream::TestPublisherConfig());
  const Json live = {{"name", "live"},
                     {"endpoint", publisher->endpoint()},
                     {"replay_endpoint", publisher->replay_endpoint()}};
  Write(ListOf({live}));
  Start();
  // A batch during the join may reset the source.
  ASSERT_TRUE(Eventually([&] { return service->workers()[0].state == SourceState::kSynced; }));
  ASSERT_TRUE(publisher->Publish(Batch(StoreFull(Hashes(1, 5), 0))).ok());
  ASSERT_TRUE(Eventually([&] { return service->workers()[0].stream.batches > 0; }));
  Write(ListOf({Listed("other"), live}));
  ASSERT_TRUE(Await({"live", "other"}));
  EXPECT_EQ(service->workers()[0].stream.resets, 0u);
  // The router did not remove the source and add it again.
  EXPECT_EQ(lines.With({"source_added source=live"}).size(), 1u);
  EXPECT_TRUE(lines.With({"source_removed source=live"}).empty());
}

// Each content is invalid for another reason. No content removes the source.
TEST_F(SourceFilesTest, AnInvalidFileKeepsTheSources) {
  Write(ListOf({Listed("a")}));
  Start();
  const std::pair<std::string, std::string> contents[] = {
      {"", "not JSON"},
      {ListOf({Listed("b")}).substr(0, 20), "not JSON"},
      {"[]", "must be an object"},
      {"{}", "sources: required"},
      {R"({"sources": {}})", "sources: must be an array"},
      {R"({"sources": [], "http": "127.0.0.1:1"})", "unknown member: http"},
      {R"({"sources": [{"name": "b"}]})", "sources[0]: endpoint: required"},
      {ListOf({Listed("b"), Listed("b")}), "two sources are named b"},
      {ListOf({Listed("b"), {{"name", "c"}, {"endpoint", "inproc://c"}}}),
       "sources[1]: endpoint: inproc endpoints are not allowed"}};
  for (const auto& [content, reason] : contents) {
    Write(content);
    ASSERT_TRUE(AwaitLine({"error source_file_failed source=", reason})) << reason;
    ASSERT_TRUE(Eventually([&] { return Metric("kvcast_source_file_errors") == "1"; })) << reason;
    EXPECT_THAT(Names(), ElementsAre("a")) << reason;
  }
  Write(ListOf({}));
  EXPECT_TRUE(Await({}));
  EXPECT_EQ(Get("/readyz")->status, 503);
}

// Each change of the second file shows that the first file was read again too.
TEST_F(SourceFilesTest, AFailureIsLoggedOnce) {
  options.source_files.push_back(folder.Write("more.json", ListOf({})));
  Start();
  const auto read_again = [this](const std::string& name) {
    folder.Write("more.json", ListOf({Listed(name)}));
    return Await({name});
  };
  ASSERT_TRUE(read_again("a"));
  ASSERT_TRUE(read_again("b"));
  EXPECT_EQ(lines.With({"source_file_failed", "No such file"}).size(), 1u);
  Write("x");
  ASSERT_TRUE(AwaitLine({"error source_file_failed", "not JSON"}));
  ASSERT_TRUE(read_again("a"));
  ASSERT_TRUE(read_again("b"));
  EXPECT_EQ(lines.With({"source_file_failed", "not JSON"}).size(), 1u);
}

TEST_F(SourceFilesTest, WithoutASourceTheRouterIsNotReady) {
  Start();
  const auto waits = Get("/readyz");
  EXPECT_EQ(waits->status, 503);
  EXPECT_EQ(Json::parse(waits->body)["no_source"], true);
  const auto publisher = stream::MakePublisher(stream::TestPublisherConfig());
  Write(ListOf({{{"name", "w"},
                 {"endpoint", publisher->endpoint()},
                 {"replay_endpoint", publisher->replay_endpoint()}}}));
  EXPECT_TRUE(Eventually([&] { return Get("/readyz")->status == 200; }));
}

// An open of a pipe blocks until another process opens the pipe for writing.
TEST_F(SourceFilesTest, OnlyRegularFilesOfABoundedSizeAreRead) {
  const std::string path = options.source_files[0];
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Start();
  ASSERT_TRUE(AwaitLine({"source_file_failed", "not a regular file"}));
  std::filesystem::remove(path);
  Write(std::string((SourceFiles::kMaxMib << 20) + 1, ' '));
  ASSERT_TRUE(AwaitLine({"source_file_failed", "larger than 16 MiB"}));
  Write(ListOf({Listed("a")}));
  EXPECT_TRUE(Await({"a"}));
}

TEST_F(SourceFilesTest, ADirectoryIsNotRead) {
  const std::string path = options.source_files[0];
  ASSERT_TRUE(std::filesystem::create_directory(path));
  Start();
  ASSERT_TRUE(AwaitLine({"source_file_failed", "not a regular file"}));
  std::filesystem::remove(path);
  Write(ListOf({Listed("a")}));
  EXPECT_TRUE(Await({"a"}));
}

TEST_F(SourceFilesTest, ASourceThatCannotBeFollowedDoesNotStopTheOthers) {
  Json remote = Listed("remote");
  remote["endpoint"] = "tcp://192.0.2.1:5557";
  Write(ListOf({remote, Listed("a")}));
  Start();
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_EQ(Metric("kvcast_source_file_errors"), "1");
  EXPECT_EQ(Metric("kvcast_source_file_sources"), "1");
  ASSERT_TRUE(AwaitLine({"error source_failed source=remote by=file"}));
}

TEST_F(SourceFilesTest, TheFlagsForAllSourcesApplyToTheSourcesOfFiles) {
  options.source_defaults.candidate_seeds = {"seed-of-the-fleet"};
  options.source_defaults.algorithm = HashAlgorithm::kSha256Cbor;
  Json xxhash = Listed("b");
  xxhash["hash_algorithm"] = "xxhash";
  Write(ListOf({Listed("a"), xxhash}));
  Start();
  const Json listed = Json::parse(Get("/v1/sources")->body);
  EXPECT_EQ(listed["sources"].size(), 2u) << listed;
  for (const Json& source : listed["sources"]) {
    EXPECT_EQ(source.value("hash_algorithm", ""), source["name"] == "a" ? "sha256_cbor" : "xxhash");
  }
}

TEST_F(SourceFilesTest, TwoFilesAndTheConfigurationDoNotTakeEachOthersSources) {
  WorkerRegistration configured;
  configured.worker.name = "c";
  configured.endpoint = "tcp://127.0.0.1:9";
  options.sources = {configured};
  options.source_files.push_back(folder.Write("more.json", ListOf({Listed("a"), Listed("b")})));
  Write(ListOf({Listed("a"), Listed("c")}));
  Start();
  EXPECT_THAT(Names(), UnorderedElementsAre("a", "b", "c"));
  Write(ListOf({}));
  // The second file takes over the name.
  EXPECT_TRUE(Eventually([&] { return !lines.With({"source_removed source=a"}).empty(); }));
  EXPECT_TRUE(Eventually([&] { return Names() == std::vector<std::string>{"c", "b", "a"}; }));
}

Json Polled(const EventServer& engine) {
  return {{"name", "trtllm"},
          {"endpoint", engine.url()},
          {"format", "trtllm"},
          {"window_sizes", {1024}},
          {"tokens_per_block", 32}};
}

TEST_F(SourceFilesTest, AUrlThatAFileAddsIsPolled) {
  const EventServer engine;
  Start();
  Write(ListOf({Polled(engine)}));
  EXPECT_TRUE(engine.AwaitPolls(1));
}

TEST_F(SourceFilesTest, AUrlThatAReloadAddsIsPolled) {
  const EventServer engine;
  options.source_files.clear();
  Start();
  options.sources = {SourceFromJson(Polled(engine)).value()};
  ASSERT_TRUE(service->Reload(options).ok());
  EXPECT_TRUE(engine.AwaitPolls(1));
}

TEST_F(SourceFilesTest, AReloadChangesOnlyTheConfiguredSources) {
  const auto configured = [](const std::string& name) {
    WorkerRegistration source;
    source.worker.name = name;
    source.endpoint = "tcp://127.0.0.1:9";
    return source;
  };
  options.sources = {configured("a"), configured("b")};
  Write(ListOf({Listed("f")}));
  Start();
  options.sources = {configured("c"), configured("c")};
  EXPECT_FALSE(service->Reload(options).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("a", "b", "f"));
  options.sources = {configured("b"), configured("c"), configured("f")};
  const auto changes = service->Reload(options);
  ASSERT_TRUE(changes.ok());
  EXPECT_EQ(changes->added, 1u);
  EXPECT_EQ(changes->removed, 1u);
  ASSERT_EQ(changes->errors.size(), 1u);
  EXPECT_EQ(changes->errors[0].message(), "a worker named f exists already");
  EXPECT_THAT(Names(), UnorderedElementsAre("b", "c", "f"));
  ASSERT_TRUE(AwaitLine({"source_removed source=a by=configuration"}));
}

// The router handles the reload before it reads the file again.
TEST_F(SourceFilesTest, ASourceThatMovesFromAFileToTheConfigurationIsFollowedAgain) {
  Write(ListOf({Listed("f")}));
  Start();
  options.sources = {SourceFromJson(Listed("f")).value()};
  const auto changes = service->Reload(options);
  ASSERT_TRUE(changes.ok());
  ASSERT_EQ(changes->errors.size(), 1u);
  EXPECT_EQ(changes->errors[0].message(), "a worker named f exists already");
  Write(ListOf({}));
  ASSERT_TRUE(AwaitLine({"source_removed source=f by=file"}));
  EXPECT_TRUE(Await({"f"}));
  EXPECT_TRUE(AwaitLine({"source_added source=f by=configuration"}));
  EXPECT_EQ(lines.With({"source_failed source=f by=configuration"}).size(), 1u);
}

}  // namespace
}  // namespace kvcast::router
