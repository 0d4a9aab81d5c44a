// The sources follow the lists and watches of an API server. While the API server fails, the
// sources stay.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/kubernetes_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "router/service/api/source_json.h"
#include "router/service/router_service.h"
#include "src/base/mutex.h"
#include "tests/router/service/discovery/slices_json.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/log_lines.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::testing::LogLines;
using Json = nlohmann::json;
using stream::Eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// An API server. Each request waits for the parts of its answer, which the test gives. Thread-safe.
class FakeServer {
 public:
  void Begin(int status) { Put({.status = status}); }
  void Send(const std::string& bytes) { Put({.bytes = bytes}); }
  // Ends the answer. `error` empty: the answer is complete.
  void End(const std::string& error = "") { Put({.ends = true, .error = error}); }
  void Answer(int status, const std::string& body) {
    Begin(status);
    Send(body);
    End();
  }
  HttpOutcome Serve(const HttpGet& get, const std::atomic<bool>& stopping) {
    {
      const MutexLock lock(mutex_);
      requests_.push_back(get);
    }
    int status = 0;
    for (;;) {
      const Part part = Take(stopping);
      if (part.ends) return {status, part.error};
      if (part.status != 0) status = part.status;
      if (!get.on_bytes(status, part.bytes)) return {status, "ended"};
    }
  }
  void Wake() {
    const MutexLock lock(mutex_);
    wake_.NotifyAll();
  }
  size_t requests() const {
    const MutexLock lock(mutex_);
    return requests_.size();
  }
  HttpGet request(size_t index) const {
    const MutexLock lock(mutex_);
    return requests_.at(index);
  }

 private:
  struct Part {
    int status = 0;
    std::string bytes;
    bool ends = false;
    std::string error;
  };
  void Put(Part part) {
    const MutexLock lock(mutex_);
    parts_.push_back(std::move(part));
    wake_.NotifyAll();
  }
  Part Take(const std::atomic<bool>& stopping) {
    const MutexLock lock(mutex_);
    while (parts_.empty() && !stopping) wake_.Wait(mutex_);
    if (stopping) return {.ends = true, .error = "stopped"};
    Part part = std::move(parts_.front());
    parts_.pop_front();
    return part;
  }

  mutable Mutex mutex_;
  CondVar wake_;
  std::deque<Part> parts_ KV_GUARDED_BY(mutex_);
  std::vector<HttpGet> requests_ KV_GUARDED_BY(mutex_);
};

HttpClient ClientOf(FakeServer& server) {
  const auto stopping = std::make_shared<std::atomic<bool>>(false);
  return {.get = [&server, stopping](const HttpGet& get) { return server.Serve(get, *stopping); },
          .stop =
              [&server, stopping] {
                *stopping = true;
                server.Wake();
              }};
}

std::string WatchEvent(const std::string& type, const Json& object) {
  return Json{{"type", type}, {"object", object}}.dump() + "\n";
}

struct KubernetesSourcesTest : ::testing::Test {
  KubernetesSourcesTest() {
    fleet = Fleet::Create({}, index, {}).value();
    folder.Write("token", "first\n");
    KubernetesSourcesConfig config;
    config.api = {.url = "http://127.0.0.1:1",
                  .token_file = folder.File("token"),
                  .ca_file = "",
                  .namespace_file = folder.File("namespace")};
    config.lists = {.kind = "kubernetes",
                    .failed = log_events::kSourceWatchFailed,
                    .text_of = [](const WorkerRegistration& source) { return source.endpoint; },
                    .log = &lines.log()};
    config.make_client = [this] { return ClientOf(server); };
    config.first_wait_ms = 1;
    sources = std::make_unique<KubernetesSources>(std::move(config), *fleet, log);
  }
  void Set(const std::vector<Json>& lists) {
    std::vector<KubernetesSource> set;
    for (const Json& list : lists) set.push_back(KubernetesSourceFromJson(list).value());
    sources->Set(std::move(set));
  }
  // Starts with a list of one endpoint, and waits for the watch.
  void Begin() {
    Set({given});
    sources->Begin();
    server.Answer(200, SliceList("5", {Slice("a", {"127.0.0.1"})}));
    ASSERT_TRUE(AwaitRequests(2));
    server.Begin(200);
  }
  bool AwaitRequests(size_t count) const {
    return Eventually([&] { return server.requests() >= count; });
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    const FleetView view = fleet->view();
    for (const auto& worker : view->workers) names.push_back(worker->config.worker.name);
    return names;
  }
  bool AwaitNames(std::vector<std::string> names) const {
    return Eventually([&] { return Names() == names; });
  }
  bool AwaitErrors(size_t errors) const {
    return Eventually([&] {
      const auto reports = sources->reports();
      return reports.size() == 1 && reports[0].errors == errors;
    });
  }

  bool AwaitLine(const std::string& text) {
    return Eventually([&] { return lines.With({text}).size() == 1; });
  }

  PrefixIndex index;
  std::unique_ptr<Fleet> fleet;
  LogLines lines;
  SourceLog log{&lines.log()};
  stream::TemporaryFolder folder;
  Json given = {{"service", "vllm"},
                {"namespace", "models"},
                {"source", {{"name", "e-{host}"}, {"endpoint", "tcp://{host}:{port}"}}}};
  FakeServer server;
  std::unique_ptr<KubernetesSources> sources;  // last: its threads use the other members
};

TEST_F(KubernetesSourcesTest, TheSourcesFollowTheListAndTheWatch) {
  Begin();
  EXPECT_TRUE(AwaitNames({"e-127.0.0.1"}));
  server.Send(WatchEvent("ADDED", Slice("b", {"127.0.0.2"}, "IPv4", "6")));
  EXPECT_TRUE(AwaitNames({"e-127.0.0.1", "e-127.0.0.2"}));
  Json changed = Slice("b", {"127.0.0.2"}, "IPv4", "7");
  changed["endpoints"][0]["conditions"]["ready"] = false;
  server.Send(WatchEvent("MODIFIED", changed));
  EXPECT_TRUE(AwaitNames({"e-127.0.0.1"}));
  EXPECT_TRUE(AwaitLine("source_removed source=e-127.0.0.2 by=kubernetes"));
  server.Send(WatchEvent("DELETED", Slice("a", {"127.0.0.1"}, "IPv4", "8")));
  EXPECT_TRUE(AwaitNames({}));
  EXPECT_EQ(server.request(0).url,
            "http://127.0.0.1:1/apis/discovery.k8s.io/v1/namespaces/models/endpointslices"
            "?labelSelector=kubernetes.io%2Fservice-name%3Dvllm&limit=20");
  EXPECT_THAT(server.request(1).url,
              HasSubstr("&watch=true&allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds="));
}

TEST_F(KubernetesSourcesTest, AllPagesOfAListAreRead) {
  Set({given});
  sources->Begin();
  server.Answer(200, SliceList("5", {Slice("a", {"127.0.0.1"})}, "next+page"));
  server.Answer(200, SliceList("5", {Slice("b", {"127.0.0.2"})}));
  EXPECT_TRUE(AwaitNames({"e-127.0.0.1", "e-127.0.0.2"}));
  EXPECT_THAT(server.request(1).url, HasSubstr("&limit=20&continue=next%2Bpage"));
}

TEST_F(KubernetesSourcesTest, AListThatExpiresBetweenTwoPagesIsReadAgain) {
  Set({given});
  sources->Begin();
  server.Answer(200, SliceList("5", {Slice("a", {"127.0.0.1"})}, "next"));
  server.Answer(410, R"({"kind": "Status", "message": "expired", "code": 410})");
  server.Answer(200, SliceList("9", {Slice("b", {"127.0.0.2"})}));
  EXPECT_TRUE(AwaitNames({"e-127.0.0.2"}));
  EXPECT_THAT(server.request(2).url, Not(HasSubstr("continue=")));
  EXPECT_THAT(lines.With({"source_watch_failed"}), IsEmpty());
}

TEST_F(KubernetesSourcesTest, ListsThatExpireAgainAndAgainAreAFailure) {
  Set({given});
  sources->Begin();
  for (int i = 0; i < 2; ++i) {
    server.Answer(200, SliceList("5", {Slice("a", {"127.0.0.1"})}, "next"));
    server.Answer(410, R"({"kind": "Status", "message": "expired", "code": 410})");
  }
  ASSERT_TRUE(AwaitErrors(1));
  EXPECT_EQ(lines.With({"source_watch_failed", "the API server answered 410: expired"}).size(), 1u);
}

// The rest of the line is lost with the connection. The next watch begins at the latest version.
TEST_F(KubernetesSourcesTest, AWatchThatEndsInALineGoesOn) {
  Begin();
  server.Send(WatchEvent("BOOKMARK", {{"metadata", {{"resourceVersion", "9"}}}}));
  const std::string event = WatchEvent("ADDED", Slice("b", {"127.0.0.2"}, "IPv4", "10"));
  server.Send(event.substr(0, 20));
  server.End("the connection was closed");
  ASSERT_TRUE(AwaitRequests(3));
  EXPECT_THAT(server.request(2).url, HasSubstr("resourceVersion=9&"));
  server.Begin(200);
  server.Send(event.substr(0, 20));
  server.Send(event.substr(20));
  EXPECT_TRUE(AwaitNames({"e-127.0.0.1", "e-127.0.0.2"}));
  EXPECT_THAT(lines.With({"source_watch_failed"}), IsEmpty());
}

TEST_F(KubernetesSourcesTest, WatchesThatEndEarlyAgainAndAgainAreAFailure) {
  Begin();
  server.End("cut");
  server.Begin(200);
  server.End("cut");
  ASSERT_TRUE(AwaitErrors(1));
  EXPECT_EQ(lines.With({"source_watch_failed", "the watch ended early: cut"}).size(), 1u);
  server.Begin(200);
  server.Send(WatchEvent("BOOKMARK", {{"metadata", {{"resourceVersion", "9"}}}}));
  EXPECT_TRUE(AwaitErrors(0));
  EXPECT_THAT(Names(), UnorderedElementsAre("e-127.0.0.1"));
}

TEST_F(KubernetesSourcesTest, AnExpiredVersionNeedsANewList) {
  Begin();
  server.Send(WatchEvent("ERROR", {{"kind", "Status"}, {"code", 410}}));
  server.Answer(200, SliceList("20", {Slice("b", {"127.0.0.2"})}));
  EXPECT_TRUE(AwaitNames({"e-127.0.0.2"}));
  ASSERT_TRUE(AwaitRequests(4));
  EXPECT_THAT(server.request(2).url, Not(HasSubstr("watch=")));
  EXPECT_THAT(server.request(3).url, HasSubstr("resourceVersion=20&"));
  server.Answer(410, "");  // the answer to a watch may have status 410 too
  server.Answer(200, SliceList("30", {Slice("c", {"127.0.0.3"})}));
  EXPECT_TRUE(AwaitNames({"e-127.0.0.3"}));
  EXPECT_THAT(lines.With({"source_watch_failed"}), IsEmpty());
}

TEST_F(KubernetesSourcesTest, ADamagedEventChangesNothing) {
  Begin();
  ASSERT_TRUE(AwaitNames({"e-127.0.0.1"}));
  server.Send("{\"type\": \"ADDED\"\n");
  EXPECT_TRUE(AwaitErrors(1));
  EXPECT_THAT(Names(), UnorderedElementsAre("e-127.0.0.1"));
  EXPECT_EQ(lines.With({"source_watch_failed", "models/kubernetes.io/service-name=vllm"}).size(),
            1u);
  server.Answer(200, SliceList("20", {Slice("b", {"127.0.0.2"})}));  // the state is listed again
  EXPECT_TRUE(AwaitNames({"e-127.0.0.2"}));
  EXPECT_TRUE(AwaitErrors(0));
}

TEST_F(KubernetesSourcesTest, AnEventThatIsTooLongChangesNothing) {
  Begin();
  server.Send(std::string(EndpointSlices::kMaxEventBytes + 1, ' '));
  EXPECT_TRUE(AwaitErrors(1));
  EXPECT_EQ(lines.With({"source_watch_failed", "too long"}).size(), 1u);
}

TEST_F(KubernetesSourcesTest, WhileTheServerDoesNotAnswerTheSourcesStay) {
  Begin();
  ASSERT_TRUE(AwaitNames({"e-127.0.0.1"}));
  server.End("cut");
  for (int i = 0; i < 3; ++i) server.End("no connection");
  ASSERT_TRUE(AwaitErrors(1));
  ASSERT_TRUE(AwaitRequests(6));
  EXPECT_THAT(Names(), UnorderedElementsAre("e-127.0.0.1"));
  EXPECT_EQ(lines.With({"source_watch_failed", "no connection"}).size(), 1u);
  EXPECT_EQ(sources->reports().at(0).followed, 1u);
  server.Begin(200);  // the failure ends before an event arrives
  EXPECT_TRUE(AwaitErrors(0));
}

TEST_F(KubernetesSourcesTest, EachRequestReadsTheToken) {
  Set({given});
  sources->Begin();
  server.Answer(401, R"({"kind": "Status", "message": "Unauthorized", "code": 401})");
  ASSERT_TRUE(AwaitErrors(1));
  EXPECT_EQ(server.request(0).token, "first");
  EXPECT_EQ(lines.With({"the API server answered 401: Unauthorized"}).size(), 1u);
  const size_t before = server.requests();
  folder.Write("token", "second");
  for (size_t i = 0; i < 2; ++i) server.Answer(401, "");
  ASSERT_TRUE(AwaitRequests(before + 2));
  EXPECT_EQ(server.request(before + 1).token, "second");
}

TEST_F(KubernetesSourcesTest, WithoutANamespaceTheFileOfTheAccountIsRead) {
  given.erase("namespace");
  Set({given});
  sources->Begin();
  ASSERT_TRUE(AwaitErrors(1));
  EXPECT_EQ(lines.With({"source_watch_failed", "namespace: No such file"}).size(), 1u);
  folder.Write("namespace", "own\n");
  ASSERT_TRUE(AwaitRequests(1));
  EXPECT_THAT(server.request(0).url, HasSubstr("/namespaces/own/"));
}

TEST_F(KubernetesSourcesTest, APortThatNoSliceHasIsAFailure) {
  given["port_name"] = "events";
  Set({given});
  sources->Begin();
  server.Answer(200, SliceList("5", {Slice("a", {"127.0.0.1"})}));
  ASSERT_TRUE(AwaitErrors(1));
  EXPECT_EQ(lines.With({"no endpoint has a port named events"}).size(), 1u);
}

TEST_F(KubernetesSourcesTest, ANewTemplateNeedsNoNewList) {
  Begin();
  ASSERT_TRUE(AwaitNames({"e-127.0.0.1"}));
  given["source"]["name"] = "engine-{host}";
  Set({given});
  EXPECT_THAT(Names(), UnorderedElementsAre("engine-127.0.0.1"));
  EXPECT_EQ(server.requests(), 2u);
}

TEST_F(KubernetesSourcesTest, ANewTemplateKeepsTheFailureOfTheServer) {
  Begin();
  ASSERT_TRUE(AwaitNames({"e-127.0.0.1"}));
  server.End("cut");
  server.End("no connection");
  ASSERT_TRUE(AwaitErrors(1));
  given["source"]["name"] = "engine-{host}";
  Set({given});
  EXPECT_THAT(Names(), UnorderedElementsAre("engine-127.0.0.1"));
  EXPECT_EQ(sources->reports().at(0).errors, 1u);
}

TEST_F(KubernetesSourcesTest, AListThatIsNoLongerSetLosesItsSources) {
  Begin();
  ASSERT_TRUE(AwaitNames({"e-127.0.0.1"}));
  EXPECT_TRUE(sources->has_lists());
  given["service"] = "other";  // its source has the same name
  Set({given});
  server.Answer(200, SliceList("7", {Slice("x", {"127.0.0.1"})}));
  EXPECT_TRUE(AwaitNames({"e-127.0.0.1"}));
  EXPECT_THAT(lines.With({"source_failed"}), IsEmpty());
  Set({});
  EXPECT_FALSE(sources->has_lists());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST(KubernetesService, WithoutAClientThereAreNoLists) {
  RouterOptions options;
  options.http.port = 0;
  KubernetesSource source;
  source.selector = "a=b";
  options.kubernetes_sources.push_back(source);
  const auto service = RouterService::Start(options);
  EXPECT_EQ(service.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(service.status().message(), HasSubstr("kubernetes_sources"));
}

}  // namespace
}  // namespace kvcast::router
