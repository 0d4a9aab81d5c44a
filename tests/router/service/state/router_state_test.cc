// A router that restarts with a saved state knows the blocks of its engines at once, and every
// exact answer is the result of the engine's own lookup. A state that cannot be proven or is
// damaged is not used.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router/service/json/json_fields.h"
#include "router/service/router_service.h"
#include "tests/router/service/state/state_engine.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/log_lines.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

namespace fs = std::filesystem;
using stream::Eventually;
using testing::LogLines;
using Engine = kvcast::testing::StateEngine;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void WriteFile(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class RouterStateTest : public ::testing::TestWithParam<bool> {
 protected:
  RouterStateTest() {
    options.state.folder = folder.File("state");
    options.state.period_s = 3600;  // saves at the end only
    options.log = &lines.log();
    options.ingest_threads = 2;
  }
  void Start() {
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
  }
  void Stop() { service.reset(); }
  void Restart() {
    Stop();
    Start();
  }
  fs::path State(const std::string& name) const { return fs::path(options.state.folder) / name; }
  // The file with the state of the worker. The test must have only one such file.
  fs::path FileOfWorker() const {
    for (const auto& file : fs::directory_iterator(options.state.folder)) {
      if (file.path().extension() != ".state") continue;
      if (ReadFile(file.path()).find("engine") != std::string::npos) return file.path();
    }
    return {};
  }
  // Number of files that stay until a save is complete.
  int64_t KeptFiles() const {
    int64_t files = 0;
    for (const auto& file : fs::directory_iterator(options.state.folder)) {
      files += file.path().filename().string().starts_with("kept-") ? 1 : 0;
    }
    return files;
  }

  WorkerReport Worker(size_t i = 0) const { return service->workers().at(i); }
  bool AwaitSynced(const Engine& engine, size_t i = 0) const {
    return engine.AwaitFollowed(*service, i);
  }
  // The answers to `prompts` prompts must be exact, and equal the engine's own lookup.
  void ExpectExact(Engine& engine, int prompts = 30) const {
    ASSERT_TRUE(AwaitSynced(engine));
    engine.ExpectExactAnswers(*service, prompts);
  }
  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", service->http_port());
    client.set_read_timeout(60);
    return client;
  }
  std::string Metric(const std::string& name) const {
    const std::string page = Client().Get("/metrics")->body;
    const size_t at = page.find("\n" + name + " ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 2;
    return page.substr(begin, page.find('\n', begin) - begin);
  }

  stream::TemporaryFolder folder;
  LogLines lines{LogLevel::kDebug};
  RouterOptions options;
  std::unique_ptr<RouterService> service;
};

// true: the publisher has epochs (KVX1). false: only its batches prove the publisher.
INSTANTIATE_TEST_SUITE_P(Publishers, RouterStateTest, ::testing::Bool());

TEST_P(RouterStateTest, ARestartRestoresTheBlocks) {
  Engine engine(1, GetParam());
  options.sources = {engine.Source()};
  Start();
  engine.Run(60);
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
  Restart();
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
  EXPECT_LE(Worker().stream.replayed, 1u) << "only the batch that proves the publisher";
  EXPECT_EQ(Worker().stream.resets, 0u);
  EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "1");
  EXPECT_EQ(lines.With({"source_restored source=engine"}).size(), 1u);
  for (int turn = 0; turn < 20; ++turn) {
    engine.Run(2);
    ASSERT_NO_FATAL_FAILURE(ExpectExact(engine, 12));
  }
}

TEST_P(RouterStateTest, MissedBatchesAreReplayed) {
  Engine engine(2, GetParam());
  options.sources = {engine.Source()};
  Start();
  engine.Run(40);
  ASSERT_TRUE(AwaitSynced(engine));
  Stop();
  engine.Run(25);
  Start();
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
  EXPECT_EQ(Worker().stream.resets, 0u);
}

// The router was killed. The files have an older state.
TEST_P(RouterStateTest, AnOlderStateIsContinued) {
  Engine engine(3, GetParam());
  options.sources = {engine.Source()};
  Start();
  engine.Run(40);
  ASSERT_TRUE(AwaitSynced(engine));
  Stop();
  fs::copy(options.state.folder, folder.File("older"), fs::copy_options::recursive);
  Start();
  engine.Run(40);
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
  Stop();
  fs::remove_all(options.state.folder);
  fs::rename(folder.File("older"), options.state.folder);
  Start();
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
  EXPECT_EQ(Worker().stream.resets, 0u);
}

TEST_P(RouterStateTest, AnEngineThatRestartedLosesItsState) {
  auto engine = std::make_unique<Engine>(4, GetParam());
  options.sources = {engine->Source()};
  Start();
  engine->Run(40);
  ASSERT_TRUE(AwaitSynced(*engine));
  Stop();
  engine = engine->Restart(5);
  engine->Run(60);
  Start();
  ASSERT_NO_FATAL_FAILURE(ExpectExact(*engine));
  EXPECT_EQ(Worker().stream.resets, 1u);
}

// Until the engine answers, the state is not used.
TEST_P(RouterStateTest, AStateWithoutProofHasNoWeight) {
  auto engine = std::make_unique<Engine>(6, GetParam());
  options.sources = {engine->Source()};
  Start();
  engine->Run(40);
  ASSERT_TRUE(AwaitSynced(*engine));
  Stop();
  engine->publisher.reset();
  Start();
  EXPECT_EQ(Worker().state, SourceState::kConnecting);
  EXPECT_EQ(Worker().stream.weight, 0);
  const auto answers = service->Ask(engine->NextQuery());
  ASSERT_TRUE(answers.ok());
  EXPECT_EQ(answers->at(0).answer.weight, 0);
  EXPECT_FALSE(answers->at(0).answer.exact);
  // A second restart keeps the state.
  Restart();
  EXPECT_EQ(lines.With({"source_restored source=engine"}).size(), 2u);
}

// With two threads, worker "b" belongs to shard 1, whose state cannot be saved. The only state of
// "b" is in the old file of shard 0.
TEST_P(RouterStateTest, AnIncompleteFirstSaveKeepsTheStatesOfAllShards) {
  Engine a(7, GetParam());
  Engine b(8, GetParam());
  options.sources = {a.Source("a"), b.Source("b")};
  options.ingest_threads = 1;
  const auto start = [&] {
    a.Run(20);
    b.Run(20);
    Start();
    ASSERT_TRUE(AwaitSynced(a, 0));
    ASSERT_TRUE(AwaitSynced(b, 1));
  };
  ASSERT_NO_FATAL_FAILURE(start());
  Stop();
  options.ingest_threads = 2;
  for (int run = 0; run < 2; ++run) {
    ASSERT_NO_FATAL_FAILURE(start());
    EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "2") << run;
    ASSERT_TRUE(fs::create_directory(State("shard-1.state.tmp")));
    Stop();
    ASSERT_TRUE(fs::remove(State("shard-1.state.tmp")));
  }
  EXPECT_EQ(lines.With({"state_save_failed", "shard-1.state.tmp: cannot be made"}).size(), 2u);
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "2");
  EXPECT_EQ(Worker(0).stream.resets + Worker(1).stream.resets, 0u);
  EXPECT_EQ(KeptFiles(), 1) << "the older state of a is of no use";
  Stop();
  EXPECT_EQ(KeptFiles(), 0);
}

struct StateFilesTest : RouterStateTest {
  StateFilesTest() { options.sources = {engine.Source()}; }
  void Save() {
    Start();
    engine.Run(40);
    ASSERT_TRUE(AwaitSynced(engine));
    Stop();
    std::string log;
    for (const std::string& line : lines.lines()) log += line + "\n";
    ASSERT_FALSE(lines.With({"state_saved workers=1"}).empty()) << log;
  }
  // The router starts without the state, and joins by replay.
  void ExpectColdStart(const std::string& reason) {
    Start();
    EXPECT_EQ(lines.With({"state_refused", reason}).size(), 1u) << reason;
    EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "0");
    ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
    EXPECT_GT(Worker().stream.replayed, 30u);
  }

  // The registration of the engine, as JSON.
  std::string Registration() const {
    return R"({"name": "engine", "endpoint": ")" + engine.publisher->endpoint() +
           R"(", "replay_endpoint": ")" + engine.publisher->replay_endpoint() +
           R"(", "groups": [{"kind": "full_attention", "block_size": 4},)" +
           R"({"kind": "sliding_window", "block_size": 4, "sliding_window": 12}],)" +
           R"("release": "v0.33", "reports_hits": false})";
  }
  int Register() const {
    return Client().Post("/v1/sources", Registration(), "application/json")->status;
  }

  Engine engine{7};
};
INSTANTIATE_TEST_SUITE_P(Files, StateFilesTest, ::testing::Values(true));

TEST_P(StateFilesTest, AShorterFileIsRefused) {
  Save();
  const fs::path path = FileOfWorker();
  fs::resize_file(path, fs::file_size(path) - 1);
  ExpectColdStart("the file is damaged or not complete");
  EXPECT_EQ(Metric("kvcast_state_files_refused_total"), "1");
}

TEST_P(StateFilesTest, EachChangedByteIsFound) {
  Save();
  const fs::path path = FileOfWorker();
  const std::string content = ReadFile(path);
  const uint64_t check = SecretCheck(std::stoull(ReadFile(State("secret")), nullptr, 16));
  ASSERT_TRUE(StateFile::Open(path, check).ok());
  for (size_t i = 0; i < content.size(); ++i) {
    std::string changed = content;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    WriteFile(path, changed);
    EXPECT_FALSE(StateFile::Open(path, check).ok()) << i;
  }
}

TEST_P(StateFilesTest, AnotherVersionIsRefused) {
  Save();
  const fs::path path = FileOfWorker();
  std::string content = ReadFile(path);
  content[8] = static_cast<char>(kStateVersion + 1);
  WriteFile(path, content);
  ExpectColdStart("another version or byte order");
}

TEST_P(StateFilesTest, AnotherFileIsRefused) {
  Save();
  WriteFile(FileOfWorker(), std::string(5000, 'x'));
  ExpectColdStart("not a saved state of kvcast");
}

TEST_P(StateFilesTest, TheStateOfAnotherSecretIsRefused) {
  Save();
  WriteFile(State("secret"), "0123456789abcdef\n");
  Start();
  EXPECT_EQ(lines.With({"state_refused", "another secret"}).size(), 2u) << "one per shard";
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
}

// A worker with a changed registration may have other blocks.
TEST_P(StateFilesTest, AnotherRegistrationIsAColdStart) {
  Save();
  options.sources[0].model = "another";
  Start();
  EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "0");
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
}

TEST_P(StateFilesTest, AnotherNumberOfShardsIsNoProblem) {
  Save();
  for (const size_t threads : {3, 1}) {
    options.ingest_threads = threads;
    Start();
    ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
    EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "1");
    Stop();
  }
  EXPECT_FALSE(fs::exists(State("shard-1.state")));
}

TEST_P(StateFilesTest, ASaveHasMetricsAndALine) {
  options.state.period_s = 1;
  Start();
  engine.Run(40);
  ASSERT_TRUE(AwaitSynced(engine));
  ASSERT_TRUE(Eventually([&] { return Metric("kvcast_state_workers") == "1"; }));
  EXPECT_NE(Metric("kvcast_state_saved_timestamp_seconds"), "0");
  EXPECT_NE(Metric("kvcast_state_bytes"), "0");
  EXPECT_EQ(Metric("kvcast_state_save_errors_total"), "0");
  EXPECT_FALSE(lines.With({"debug state_saved workers=1"}).empty());
}

TEST_P(StateFilesTest, AFailedSaveIsReported) {
  Save();
  options.state.period_s = 1;
  Start();
  fs::rename(options.state.folder, folder.File("moved"));
  ASSERT_TRUE(Eventually([&] { return Metric("kvcast_state_save_errors_total") >= "1"; }));
  EXPECT_FALSE(
      lines.With({"error state_save_failed", "shard-0.state.tmp: cannot be made"}).empty());
  fs::rename(folder.File("moved"), options.state.folder);
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
}

// The disk is full. The files of the previous save stay.
TEST_P(StateFilesTest, AnIncompleteSaveReplacesNoFile) {
  Save();
  const std::string before = ReadFile(FileOfWorker());
  Start();
  engine.Run(20);
  ASSERT_TRUE(AwaitSynced(engine));
  struct rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {.rlim_cur = 300, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Stop();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(lines.With({"state_save_failed", "the file cannot be written: File too large"}).size(),
            1u);
  EXPECT_EQ(ReadFile(FileOfWorker()), before);
  Start();
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
  EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "1");
}

TEST_P(StateFilesTest, SourcesOfClientsAreRestored) {
  options.sources.clear();
  Start();
  ASSERT_EQ(Register(), 201);
  engine.Run(40);
  ASSERT_TRUE(AwaitSynced(engine));
  Restart();
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
  EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "1");
  EXPECT_EQ(lines.With({"source_added source=engine by=state"}).size(), 1u);
  ASSERT_EQ(Client().Delete("/v1/sources?name=engine")->status, 200);
  Restart();
  EXPECT_TRUE(service->workers().empty());
}

// A client added a source that the router can no longer follow. This source does not stop the
// router.
TEST_P(StateFilesTest, BadSourcesOfClientsAreLogged) {
  options.sources.clear();
  Start();
  Stop();
  WriteFile(State("sources.json"),
            R"({"sources": [{"name": "w", "endpoint": "tcp://10.0.0.1:1"}]})");
  Start();
  EXPECT_EQ(lines.With({"source_failed source=w"}).size(), 1u);
  EXPECT_TRUE(service->workers().empty());
  Stop();
  WriteFile(State("sources.json"), "{");
  Start();
  EXPECT_EQ(lines.With({"state_refused", "not JSON"}).size(), 1u);
  // The file is not lost when a client registers a source.
  ASSERT_EQ(Register(), 201);
  EXPECT_EQ(ReadFile(State("sources.json.refused")), "{");
  Restart();
  EXPECT_EQ(service->workers().size(), 1u);
}

TEST_P(StateFilesTest, ASourceOfAClientThatCannotBeFollowedStaysInTheFile) {
  options.sources.clear();
  Start();
  Stop();
  WriteFile(State("sources.json"),
            R"({"sources": [{"name": "w", "endpoint": "tcp://10.0.0.1:1"}]})");
  Start();
  ASSERT_EQ(Register(), 201);
  Restart();
  EXPECT_EQ(lines.With({"source_failed source=w"}).size(), 2u);
  EXPECT_EQ(service->workers().size(), 1u);
  EXPECT_EQ(Client().Delete("/v1/sources?name=w")->status, 200);
  EXPECT_EQ(Client().Delete("/v1/sources?name=w")->status, 404);
  Restart();
  EXPECT_EQ(lines.With({"source_failed source=w"}).size(), 2u);
  EXPECT_EQ(service->workers().size(), 1u);
}

// The name of a worker has the model, the instance and the rank. The file of the sources must not
// get a name that is too long for a worker.
TEST_P(StateFilesTest, ASourceWithALongNameIsRefused) {
  options.sources.clear();
  Start();
  const auto status_of_model = [this](size_t bytes) {
    const std::string body =
        R"({"instance_id": "a", "endpoint": "tcp://127.0.0.1:1", "block_size": 16, "model_name": ")" +
        std::string(bytes, 'm') + "\"}";
    return Client().Post("/register", body, "application/json")->status;
  };
  EXPECT_EQ(status_of_model(1000), 201);
  EXPECT_EQ(status_of_model(1024), 400);
  Restart();
  EXPECT_EQ(service->workers().size(), 1u);
}

// Many long registrations make a long file. The router reads each file that it can write.
TEST_P(StateFilesTest, ALongFileOfSourcesIsRead) {
  options.sources.clear();
  Start();
  Stop();
  const std::string space(size_t{17} << 20, ' ');
  WriteFile(State("sources.json"), R"({"sources": [)" + Registration() + space + "]}");
  Start();
  EXPECT_EQ(lines.With({"source_added source=engine by=state"}).size(), 1u);
}

// At the second start, the file of the sources cannot be read.
TEST_P(StateFilesTest, ASourceThatIsListedLateGetsItsState) {
  const fs::path list = folder.File("list.json");
  const fs::path away = folder.File("away.json");
  WriteFile(list, R"({"sources": [)" + Registration() + "]}");
  options.sources.clear();
  options.source_files = {list.string()};
  ASSERT_NO_FATAL_FAILURE(Save());
  fs::rename(list, away);
  Start();
  EXPECT_TRUE(service->workers().empty());
  Stop();
  fs::rename(away, list);
  Start();
  EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "1");
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
  Stop();
  EXPECT_EQ(KeptFiles(), 0);
}

// After the start, the log of the source cannot be read at first. The saved state waits for the
// attempt that follows the source.
TEST_P(StateFilesTest, ASourceThatCannotBeFollowedYetKeepsItsState) {
  std::atomic<bool> readable{true};
  options.open_log = [&](const std::string&, const OpenLogOptions&) -> Result<OpenLog> {
    if (!readable) return Status(StatusCode::kUnavailable, "not yet");
    return OpenLog{engine.publisher->endpoint(), engine.publisher->replay_endpoint(),
                   std::make_shared<int>(0)};
  };
  options.sources[0].endpoint = "nats:model/engine";
  options.sources[0].replay_endpoint.clear();
  ASSERT_NO_FATAL_FAILURE(Save());
  const auto sources = std::exchange(options.sources, {});
  Start();
  options.sources = sources;
  readable = false;
  const auto refused = service->Reload(options);
  ASSERT_TRUE(refused.ok()) << refused.status().ToString();
  EXPECT_EQ(refused->errors.size(), 1u);
  EXPECT_EQ(Metric("kvcast_state_workers_restored_total"), "0");
  EXPECT_TRUE(lines.With({"source_restored source=engine"}).empty());
  readable = true;
  EXPECT_TRUE(Eventually([&] { return Metric("kvcast_state_workers_restored_total") == "1"; }));
  ASSERT_NO_FATAL_FAILURE(ExpectExact(engine));
  EXPECT_EQ(Worker().stream.resets, 0u);
}

struct StateFolderTest : ::testing::Test {
  std::string Error() const {
    const auto opened = StateFolder::Open(path.string());
    return opened.ok() ? "" : opened.status().message();
  }
  stream::TemporaryFolder temporary;
  const fs::path path = temporary.File("state");
};

TEST_F(StateFolderTest, IsUsedByOneProcess) {
  const auto first = StateFolder::Open(path.string());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Error(), path.string() + ": another process uses this folder");
}

TEST_F(StateFolderTest, KeepsItsSecret) {
  const uint64_t secret = StateFolder::Open(path.string())->secret();
  EXPECT_EQ(StateFolder::Open(path.string())->secret(), secret);
  fs::remove_all(path);
  EXPECT_NE(StateFolder::Open(path.string())->secret(), secret);
}

TEST_F(StateFolderTest, OtherUsersHaveNoAccess) {
  ASSERT_TRUE(StateFolder::Open(path.string()).ok());
  struct stat info = {};
  for (const char* name : {"secret", "lock"}) {
    ASSERT_EQ(stat((path / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
  fs::permissions(path / "secret", fs::perms(0640));
  EXPECT_NE(Error().find("secret: other users have access"), std::string::npos) << Error();
  fs::permissions(path / "secret", fs::perms(0600));
  fs::permissions(path, fs::perms(0750));
  EXPECT_NE(Error().find("state: other users have access"), std::string::npos) << Error();
}

TEST_F(StateFolderTest, ADamagedSecretIsNamed) {
  ASSERT_TRUE(StateFolder::Open(path.string()).ok());
  for (const char* text : {"", "0123", "0123456789abcdeg\n", "0123456789abcdef", "xx"}) {
    WriteFile(path / "secret", text);
    EXPECT_NE(Error().find("secret: not 16 hex digits"), std::string::npos) << Error();
  }
}

TEST_F(StateFolderTest, MustBeAFolder) {
  WriteFile(path, "");
  fs::permissions(path, fs::perms(0600));
  EXPECT_NE(Error(), "");
  fs::remove(path);
  EXPECT_NE(StateFolder::Open((path / "deep" / "er").string()).status().message(), "");
}

TEST_F(StateFolderTest, IncompleteFilesAreRemoved) {
  ASSERT_TRUE(StateFolder::Open(path.string()).ok());
  WriteFile(path / "shard-0.state.tmp", "half");
  ASSERT_TRUE(StateFolder::Open(path.string()).ok());
  EXPECT_FALSE(fs::exists(path / "shard-0.state.tmp"));
}

}  // namespace
}  // namespace kvcast::router
