// EndpointSlices gives the targets of lists and watches. Damaged answers change nothing.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/endpoint_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "router/service/api/source_json.h"
#include "router/service/config_json.h"
#include "router/service/discovery/line_reader.h"
#include "tests/router/service/discovery/slices_json.h"

namespace kvcast::router {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Change = EndpointSlices::Change;

struct EndpointSlicesTest : ::testing::Test {
  void List(const std::vector<Json>& items) {
    slices.BeginList();
    ASSERT_TRUE(slices.ReadPage(SliceList("5", items)).ok());
  }
  Result<Change> Event(const std::string& type, const Json& object) {
    return slices.ReadEvent(Json{{"type", type}, {"object", object}}.dump());
  }
  std::vector<std::string> Hosts() const {
    std::vector<std::string> hosts;
    for (const SourceTarget& target : slices.Targets()) hosts.push_back(target.host);
    return hosts;
  }

  EndpointSlices slices{"kv-events"};
};

TEST_F(EndpointSlicesTest, TargetsOfAllSlicesAreSortedAndUnique) {
  List({Slice("b", {"10.0.0.2", "10.0.0.1"}), Slice("a", {"10.0.0.3", "10.0.0.2"})});
  EXPECT_THAT(slices.Targets(),
              ElementsAre(SourceTarget{"10.0.0.1", 5557}, SourceTarget{"10.0.0.2", 5557},
                          SourceTarget{"10.0.0.3", 5557}));
  EXPECT_EQ(slices.version(), "5");
}

TEST_F(EndpointSlicesTest, EndpointsThatAreNotReadyAreLeftOut) {
  Json slice = Slice("a", {"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"});
  slice["endpoints"][0]["conditions"] = {{"ready", false}};
  slice["endpoints"][1]["conditions"] = {{"ready", nullptr}};
  slice["endpoints"][2]["conditions"] = {{"ready", true}, {"terminating", true}};
  slice["endpoints"][3].erase("conditions");
  List({slice});
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.2", "10.0.0.4", "10.0.0.5"));
}

TEST_F(EndpointSlicesTest, AddressesHaveTheirUsualForm) {
  List({Slice("a", {"FD00::0001"}, "IPv6"), Slice("b", {"Engine.Example.ORG."}, "FQDN")});
  EXPECT_THAT(Hosts(), ElementsAre("engine.example.org", "fd00::1"));
}

// A service with two address families has each pod in two slices.
TEST_F(EndpointSlicesTest, APodWithAnIpv4AddressHasNoOtherTarget) {
  Json v4 = Slice("a", {"10.0.0.1"});
  Json v6 = Slice("b", {"fd00::1", "fd00::2"}, "IPv6");
  v4["endpoints"][0]["targetRef"] = {{"kind", "Pod"}, {"uid", "one"}};
  v6["endpoints"][0]["targetRef"] = {{"kind", "Pod"}, {"uid", "one"}};
  v6["endpoints"][1]["targetRef"] = {{"kind", "Pod"}, {"uid", "two"}};
  List({v4, v6});
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.1", "fd00::2"));
}

TEST_F(EndpointSlicesTest, ATargetHasThePortWithTheConfiguredName) {
  Json slice = Slice("a", {"10.0.0.1"});
  slice["ports"] = Json::parse(R"([{"name": "http", "port": 8000},
                                   {"name": "kv-events", "port": 9, "protocol": "UDP"},
                                   {"name": "kv-events", "port": 5558, "protocol": "TCP"}])");
  List({slice});
  EXPECT_THAT(slices.Targets(), ElementsAre(SourceTarget{"10.0.0.1", 5558}));
  slice["ports"].erase(2);
  List({slice});
  EXPECT_THAT(slices.Targets(), IsEmpty());
  EXPECT_TRUE(slices.lacks_port());
  List({slice, Slice("b", {"10.0.0.2"})});  // another slice has the port
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.2"));
  EXPECT_FALSE(slices.lacks_port());
}

TEST_F(EndpointSlicesTest, WithoutANameTheOnlyPortIsTaken) {
  EndpointSlices unnamed("");
  const auto port_of = [&unnamed](const Json& slice) {
    unnamed.BeginList();
    EXPECT_TRUE(unnamed.ReadPage(SliceList("5", {slice})).ok());
    const auto targets = unnamed.Targets();
    return targets.size() == 1 ? targets.front().port : -1;
  };
  Json slice = Slice("a", {"10.0.0.1"});
  EXPECT_EQ(port_of(slice), 5557);
  slice["ports"].push_back({{"name", "http"}, {"port", 8000}});
  EXPECT_EQ(port_of(slice), 0);
  slice["ports"] = nullptr;
  EXPECT_EQ(port_of(slice), 0);
}

TEST_F(EndpointSlicesTest, ThePagesOfAListAreOneList) {
  List({Slice("old", {"10.0.0.9"})});
  slices.BeginList();
  ASSERT_TRUE(slices.ReadPage(SliceList("6", {Slice("a", {"10.0.0.1"})}, "more")).ok());
  EXPECT_EQ(slices.next_page(), "more");
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.9"));
  ASSERT_TRUE(slices.ReadPage(SliceList("6", {Slice("b", {"10.0.0.2"})})).ok());
  EXPECT_EQ(slices.next_page(), "");
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.1", "10.0.0.2"));
  EXPECT_EQ(slices.version(), "6");
}

TEST_F(EndpointSlicesTest, EventsChangeTheirSlice) {
  List({Slice("a", {"10.0.0.1"})});
  EXPECT_EQ(*Event("ADDED", Slice("b", {"10.0.0.2"}, "IPv4", "6")), Change::kSlices);
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.1", "10.0.0.2"));
  EXPECT_EQ(*Event("MODIFIED", Slice("a", {"10.0.0.3"}, "IPv4", "7")), Change::kSlices);
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.2", "10.0.0.3"));
  EXPECT_EQ(*Event("DELETED", Slice("b", {"10.0.0.2"}, "IPv4", "8")), Change::kSlices);
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.3"));
  EXPECT_EQ(slices.version(), "8");
  EXPECT_EQ(*Event("BOOKMARK", {{"metadata", {{"resourceVersion", "20"}}}}), Change::kNone);
  EXPECT_EQ(slices.version(), "20");
}

TEST_F(EndpointSlicesTest, ErrorEventsEndTheWatch) {
  List({Slice("a", {"10.0.0.1"})});
  EXPECT_EQ(*Event("ERROR", {{"kind", "Status"}, {"code", 410}}), Change::kExpired);
  const auto other = Event("ERROR", {{"code", 500}, {"message", "etcd: no leader"}});
  EXPECT_EQ(other.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(other.status().message(), "the watch ended: etcd: no leader");
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.1"));
}

// Sets one member after the other to values of wrong types, in each object of the document.
template <typename Check>
void Damage(const Json& whole, Json& part, Check check) {
  if (!part.is_structured()) return;
  for (auto& element : part) {
    const Json good = element;
    for (const Json& bad : {Json("x"), Json(-1), Json(1.5), Json::array({Json(nullptr)}),
                            Json::object(), Json(nullptr), Json(true)}) {
      element = bad;
      check(whole.dump());
    }
    element = good;
    Damage(whole, element, check);
  }
}

TEST_F(EndpointSlicesTest, DamagedAnswersChangeNothing) {
  List({Slice("a", {"10.0.0.1"})});
  const std::string event =
      Json{{"type", "MODIFIED"}, {"object", Slice("a", {"10.0.0.2"}, "IPv4", "6")}}.dump();
  for (size_t size = 0; size < event.size(); ++size) {
    EXPECT_FALSE(slices.ReadEvent(event.substr(0, size)).ok());
  }
  EXPECT_FALSE(Event("PATCHED", Slice("a", {"10.0.0.2"})).ok());
  EXPECT_FALSE(Event("MODIFIED", Slice("a", {"10.0.0"})).ok());
  EXPECT_FALSE(Event("MODIFIED", Slice("a", {"fd00::1"})).ok());
  EXPECT_FALSE(Event("MODIFIED", Slice("a", {"a b"}, "FQDN")).ok());
  EXPECT_FALSE(Event("MODIFIED", Slice("a", {"10.0.0.2"}, "MAC")).ok());
  EXPECT_THAT(Hosts(), ElementsAre("10.0.0.1"));
  EXPECT_EQ(slices.version(), "5");
  Json list = Json::parse(SliceList("6", {Slice("a", {"10.0.0.2"})}));
  size_t errors = 0;
  Damage(list, list, [&](const std::string& body) {
    EndpointSlices read("kv-events");
    read.BeginList();
    const bool ok = read.ReadPage(body).ok();
    errors += !ok;
    EXPECT_EQ(ok && read.next_page().empty(), !read.version().empty()) << body;
  });
  EXPECT_GT(errors, 50u);
}

TEST_F(EndpointSlicesTest, TooManyEndpointsChangeNothing) {
  std::vector<std::string> hosts;
  for (size_t i = 0; i < 256; ++i) hosts.push_back("10.0.0." + std::to_string(i));
  slices.BeginList();
  for (size_t i = 0; i < EndpointSlices::kMaxEndpoints / hosts.size(); ++i) {
    ASSERT_TRUE(
        slices.ReadPage(SliceList("6", {Slice("s" + std::to_string(i), hosts)}, "more")).ok());
  }
  EXPECT_EQ(slices.ReadPage(SliceList("6", {Slice("last", {"10.0.1.1"})})).code(),
            StatusCode::kLimit);
  EXPECT_THAT(Hosts(), IsEmpty());
}

TEST(LineReader, LinesArriveInPieces) {
  LineReader reader(4);
  std::vector<std::string> lines;
  EXPECT_TRUE(reader.Add("a", lines));
  EXPECT_TRUE(reader.Add("b\n\nc\nde", lines));
  EXPECT_THAT(lines, ElementsAre("ab", "c"));
  EXPECT_TRUE(reader.Add("fg", lines));
  EXPECT_FALSE(reader.Add("h", lines));
  EXPECT_THAT(lines, ElementsAre("ab", "c"));
}

Json Named() {
  return {{"service", "vllm"},
          {"source", {{"name", "e-{host}"}, {"endpoint", "tcp://{host}:{port}"}}}};
}

TEST(KubernetesSourceFromJson, TheSelectorHasTheService) {
  Json given = Named();
  const auto service = KubernetesSourceFromJson(given);
  ASSERT_TRUE(service.ok()) << service.status().ToString();
  EXPECT_EQ(service->selector, "kubernetes.io/service-name=vllm");
  EXPECT_EQ(service->list(), "kubernetes.io/service-name=vllm");
  given["namespace"] = "models";
  given["selector"] = "pool in (a,b)";
  given["port_name"] = "kv-events";
  const auto both = KubernetesSourceFromJson(given);
  ASSERT_TRUE(both.ok()) << both.status().ToString();
  EXPECT_EQ(both->list(), "models/kubernetes.io/service-name=vllm,pool in (a,b):kv-events");
  EXPECT_EQ(both->source_of({"fd00::1", 7})->endpoint, "tcp://[fd00::1]:7");
}

TEST(KubernetesSourceFromJson, ErrorsNameTheMember) {
  const auto message = [](const char* member, const Json& value) {
    Json given = Named();
    given[member] = value;
    return KubernetesSourceFromJson(given).status().message();
  };
  EXPECT_EQ(message("service", ""), "service or selector: required");
  EXPECT_EQ(message("service", "a,b=c"), "service: must be the name of a service");
  EXPECT_EQ(message("namespace", "a/b"), "namespace: must be a name");
  EXPECT_EQ(message("lookup", "x"), "unknown member: lookup");
  EXPECT_EQ(message("source", 1), "source: must be an object");
}

TEST(KubernetesApi, WithoutTlsTheApiIsOnLoopback) {
  for (const std::string good : {"https://10.0.0.1", "https://kubernetes.default.svc:443/",
                                 "http://127.0.0.1:8001", "http://[::1]:8001/prefix"}) {
    EXPECT_TRUE(CheckApiUrl(good).ok()) << good;
  }
  for (const std::string wrong : {"", "10.0.0.1", "http://10.0.0.1", "http://localhost.example",
                                  "https://", "https://a?b", "https://u@a", "ftp://127.0.0.1"}) {
    EXPECT_EQ(CheckApiUrl(wrong).code(), StatusCode::kInvalidArgument) << wrong;
  }
  RouterOptions options;
  EXPECT_EQ(ReadConfig(R"({"kubernetes_api": "http://10.0.0.1"})", options).message(),
            "kubernetes_api: http:// is allowed for loopback addresses only, got "
            "'http://10.0.0.1'");
  const std::string twice = Json{{"kubernetes_sources", {Named(), Named()}}}.dump();
  EXPECT_EQ(ReadConfig(twice, options).message(),
            "kubernetes_sources[1]: the same namespace, selector and port_name occur twice");
}

TEST(KubernetesApi, TheUrlHasTheSelector) {
  KubernetesApi api;
  api.url = "https://api/";
  EXPECT_EQ(SlicesUrl(api, "models", "a=b,c in (d)"),
            "https://api/apis/discovery.k8s.io/v1/namespaces/models/endpointslices"
            "?labelSelector=a%3Db%2Cc%20in%20%28d%29");
}

}  // namespace
}  // namespace kvcast::router
