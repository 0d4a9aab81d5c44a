// Each target of a looked up name is a source. While a lookup fails, the sources stay.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/dns_sources.h"

#include <arpa/nameser.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "router/service/api/source_json.h"
#include "router/service/discovery/dns_client.h"
#include "src/base/mutex.h"
#include "tests/support/log_lines.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::testing::LogLines;
using nlohmann::json;
using stream::Eventually;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Bytes = std::vector<uint8_t>;

// Builds DNS answers. The question is engines.test.
class Message {
 public:
  Message() {
    Header(0);
    Name({"engines", "test"});
    U16(ns_t_a);
    U16(ns_c_in);
  }
  void Record(int type, const Bytes& data, int record_class = ns_c_in) {
    bytes_[7] = ++answers_;
    U16(0xC00C);  // the name of the question
    U16(static_cast<uint16_t>(type));
    U16(static_cast<uint16_t>(record_class));
    U16(0);
    U16(60);
    U16(static_cast<uint16_t>(data.size()));
    bytes_.insert(bytes_.end(), data.begin(), data.end());
  }
  // The data of an SRV record.
  static Bytes Service(uint16_t port, const std::vector<std::string>& host) {
    Message target;
    target.bytes_.clear();
    target.U16(1);  // priority
    target.U16(2);  // weight
    target.U16(port);
    target.Name(host);
    return target.bytes_;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  void U16(uint16_t value) {
    bytes_.push_back(static_cast<uint8_t>(value >> 8));
    bytes_.push_back(static_cast<uint8_t>(value));
  }
  void Header(uint16_t answers) {
    for (const uint16_t field :
         {uint16_t{7}, uint16_t{0x8180}, uint16_t{1}, answers, uint16_t{0}, uint16_t{0}}) {
      U16(field);
    }
  }
  void Name(const std::vector<std::string>& labels) {
    for (const std::string& label : labels) {
      bytes_.push_back(static_cast<uint8_t>(label.size()));
      bytes_.insert(bytes_.end(), label.begin(), label.end());
    }
    bytes_.push_back(0);
  }

  Bytes bytes_;
  uint8_t answers_ = 0;
};

TEST(DnsTargets, AddressesAreSortedAndUnique) {
  Message message;
  message.Record(ns_t_a, {10, 0, 0, 2});
  message.Record(ns_t_a, {10, 0, 0, 1});
  message.Record(ns_t_a, {10, 0, 0, 2});
  message.Record(ns_t_cname, {1, 'x', 0});
  message.Record(ns_t_a, {10, 0, 0, 9}, ns_c_chaos);
  EXPECT_THAT(*TargetsOf(message.bytes(), ns_t_a),
              ElementsAre(SourceTarget{"10.0.0.1", 0}, SourceTarget{"10.0.0.2", 0}));
}

TEST(DnsTargets, AnIpv6AddressHasNoBrackets) {
  Message message;
  Bytes address(16);
  address[0] = 0xFD;
  address[15] = 1;
  message.Record(ns_t_aaaa, address);
  EXPECT_THAT(*TargetsOf(message.bytes(), ns_t_aaaa), ElementsAre(SourceTarget{"fd00::1", 0}));
}

TEST(DnsTargets, AServiceHasHostsAndPorts) {
  Message message;
  message.Record(ns_t_srv, Message::Service(5557, {"B", "engines", "test"}));
  message.Record(ns_t_srv, Message::Service(5558, {"a", "engines", "test"}));
  message.Record(ns_t_srv, Message::Service(5559, {}));  // the service is not available
  message.Record(ns_t_srv, Message::Service(0, {"c"}));
  EXPECT_THAT(
      *TargetsOf(message.bytes(), ns_t_srv),
      ElementsAre(SourceTarget{"a.engines.test", 5558}, SourceTarget{"b.engines.test", 5557}));
}

// Each prefix of a message, and each message with one changed byte, gives targets or an error.
TEST(DnsTargets, DamagedMessagesAreErrors) {
  Message message;
  message.Record(ns_t_srv, Message::Service(5557, {"a", "engines", "test"}));
  message.Record(ns_t_srv, Message::Service(5557, {"b", "engines", "test"}));
  const Bytes& whole = message.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(
        TargetsOf(Bytes(whole.begin(), whole.begin() + static_cast<long>(size)), ns_t_srv).ok());
  }
  size_t errors = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      Bytes damaged = whole;
      damaged[at] = static_cast<uint8_t>(value);
      errors += !TargetsOf(damaged, ns_t_srv).ok();
    }
  }
  EXPECT_GT(errors, 1000u);
  Message narrow;
  narrow.Record(ns_t_a, {10, 0, 0});
  EXPECT_FALSE(TargetsOf(narrow.bytes(), ns_t_a).ok());
}

TEST(DnsClient, ANameServerIsAnAddressAndAPort) {
  EXPECT_TRUE(DnsClient::Create("").ok());
  EXPECT_TRUE(DnsClient::Create("127.0.0.1:53").ok());
  for (const std::string wrong : {"127.0.0.1", "localhost:53", "[::1]:53", "127.0.0.1:0", "x"}) {
    EXPECT_EQ(DnsClient::Create(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

json Template() {
  return {{"lookup", "engines.test"},
          {"source",
           {{"name", "engine-{host}"},
            {"endpoint", "tcp://{host}:5557"},
            {"replay_endpoint", "tcp://{host}:5657"}}}};
}

TEST(DnsSourceFromJson, FillsInTheHostAndThePort) {
  json given = Template();
  given["source"]["endpoint"] = "tcp://{host}:{port}";
  given["source"]["instance_id"] = "{host}/{port}";
  const auto dns = DnsSourceFromJson(given);
  ASSERT_TRUE(dns.ok()) << dns.status().ToString();
  EXPECT_EQ(dns->lookup, "engines.test");
  const auto source = dns->source_of({"fd00::1", 7});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(source->worker.name, "engine-fd00::1");
  EXPECT_EQ(source->endpoint, "tcp://[fd00::1]:7");
  EXPECT_EQ(source->replay_endpoint, "tcp://[fd00::1]:5657");
  EXPECT_EQ(source->instance, "fd00::1/7");
}

TEST(DnsSourceFromJson, ErrorsNameTheMember) {
  const auto message = [](const json& given) {
    return DnsSourceFromJson(given).status().message();
  };
  EXPECT_EQ(message(json::array()), "must be an object");
  EXPECT_EQ(message({{"source", json::object()}}), "lookup: required");
  EXPECT_EQ(message({{"lookup", "x"}}), "source: must be an object");
  json given = Template();
  given["server"] = "x";
  EXPECT_EQ(message(given), "unknown member: server");
  given = Template();
  given["source"]["name"] = "engine";
  EXPECT_EQ(message(given), "source: name: must contain {host}, because names are unique");
  given = Template();
  given["source"]["endpoint"] = "tcp://{host}";
  EXPECT_EQ(message(given), "source: endpoint: must end with a port from 1 to 65535");
}

struct DnsSourcesTest : ::testing::Test {
  DnsSourcesTest() {
    fleet = Fleet::Create({}, index, {}).value();
    DnsSourcesConfig config;
    config.look = [this](const std::string& lookup) { return Look(lookup); };
    config.lists = {.kind = "dns",
                    .failed = log_events::kSourceLookupFailed,
                    .text_of = [](const WorkerRegistration& source) { return source.endpoint; },
                    .log = &lines.log()};
    dns = std::make_unique<DnsSources>(std::move(config), *fleet, log);
  }
  Result<std::vector<SourceTarget>> Look(const std::string& lookup) {
    const MutexLock lock(mutex);
    ++lookups;
    if (!failure.empty()) return Status(StatusCode::kUnavailable, failure);
    return lookup == "engines.test" ? targets : std::vector<SourceTarget>{};
  }
  void Answer(std::vector<SourceTarget> now, std::string failed = "") {
    const MutexLock lock(mutex);
    targets = std::move(now);
    failure = std::move(failed);
  }
  // Waits for the end of a lookup that begins after this call.
  bool LookAgain() {
    const auto count = [this] {
      const MutexLock lock(mutex);
      return lookups;
    };
    const int before = count();
    dns->Set({DnsSourceFromJson(named).value()});
    // A lookup begins after the previous lookup was applied.
    if (!Eventually([&] { return count() > before; })) return false;
    dns->Set({DnsSourceFromJson(named).value()});
    return Eventually([&] { return count() > before + 1; });
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    const FleetView view = fleet->view();
    for (const auto& worker : view->workers) names.push_back(worker->config.worker.name);
    return names;
  }

  PrefixIndex index;
  std::unique_ptr<Fleet> fleet;
  LogLines lines;
  SourceLog log{&lines.log()};
  json named = {{"lookup", "engines.test"},
                {"source", {{"name", "e-{host}"}, {"endpoint", "tcp://{host}:9"}}}};
  Mutex mutex;
  std::vector<SourceTarget> targets KV_GUARDED_BY(mutex);
  std::string failure KV_GUARDED_BY(mutex);
  int lookups KV_GUARDED_BY(mutex) = 0;
  std::unique_ptr<DnsSources> dns;  // last: its thread uses the other members
};

TEST_F(DnsSourcesTest, TheSourcesFollowTheAnswers) {
  Answer({{"127.0.0.1", 0}, {"127.0.0.2", 0}});
  dns->Begin();
  ASSERT_TRUE(LookAgain());
  EXPECT_THAT(Names(), UnorderedElementsAre("e-127.0.0.1", "e-127.0.0.2"));
  Answer({{"127.0.0.2", 0}, {"127.0.0.3", 0}});
  ASSERT_TRUE(LookAgain());
  EXPECT_THAT(Names(), UnorderedElementsAre("e-127.0.0.2", "e-127.0.0.3"));
  EXPECT_EQ(lines.With({"source_added source=e-127.0.0.3 by=dns"}).size(), 1u);
  Answer({});  // the name has no target any more
  ASSERT_TRUE(LookAgain());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(DnsSourcesTest, WhileALookupFailsTheSourcesStay) {
  Answer({{"127.0.0.1", 0}});
  dns->Begin();
  ASSERT_TRUE(LookAgain());
  Answer({}, "no name server gave an answer");
  ASSERT_TRUE(LookAgain());
  EXPECT_THAT(Names(), ElementsAre("e-127.0.0.1"));
  ASSERT_TRUE(LookAgain());
  EXPECT_EQ(lines.With({"source_lookup_failed source=engines.test"}).size(), 1u);
  EXPECT_EQ(dns->reports().at(0).errors, 1u);
  EXPECT_EQ(dns->reports().at(0).followed, 1u);
  Answer({{"127.0.0.1", 0}});
  ASSERT_TRUE(LookAgain());
  EXPECT_TRUE(Eventually([&] { return dns->reports().at(0).errors == 0; }));
}

// Beyond loopback a source needs a key or `insecure`.
TEST_F(DnsSourcesTest, ATargetThatIsNotAllowedDoesNotStopTheOthers) {
  Answer({{"127.0.0.1", 0}, {"192.0.2.7", 0}});
  dns->Begin();
  ASSERT_TRUE(LookAgain());
  EXPECT_THAT(Names(), ElementsAre("e-127.0.0.1"));
  EXPECT_EQ(dns->reports().at(0).errors, 1u);
  EXPECT_EQ(lines.With({"source_failed source=e-192.0.2.7 by=dns"}).size(), 1u);
}

TEST_F(DnsSourcesTest, TargetsOfOneNameAreAnError) {
  Answer({{"127.0.0.1", 1}, {"127.0.0.1", 2}});
  dns->Begin();
  ASSERT_TRUE(LookAgain());
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_EQ(dns->reports().at(0).errors, 1u);
  EXPECT_EQ(lines.With({"source_lookup_failed", "two sources are named e-127.0.0.1"}).size(), 1u);
}

TEST_F(DnsSourcesTest, ANameThatIsNoLongerSetLosesItsSources) {
  Answer({{"127.0.0.1", 0}});
  dns->Begin();
  ASSERT_TRUE(LookAgain());
  EXPECT_TRUE(dns->has_names());
  named["lookup"] = "other.test";
  ASSERT_TRUE(LookAgain());
  EXPECT_THAT(Names(), IsEmpty());
  dns->Set({});
  EXPECT_FALSE(dns->has_names());
  EXPECT_TRUE(Eventually([&] { return dns->reports().empty(); }));
}

// A lookup may take seconds.
TEST_F(DnsSourcesTest, AfterStopNoLookupBegins) {
  std::counting_semaphore<2> began(0), ends(0);
  int calls = 0;
  DnsSourcesConfig config;
  config.lists = {.kind = "dns",
                  .failed = log_events::kSourceLookupFailed,
                  .text_of = [](const WorkerRegistration& source) { return source.endpoint; }};
  config.look = [&](const std::string&) -> Result<std::vector<SourceTarget>> {
    ++calls;
    began.release();
    ends.acquire();
    return std::vector<SourceTarget>();
  };
  auto slow = std::make_unique<DnsSources>(std::move(config), *fleet, log);
  json second = named;
  second["lookup"] = "second.test";
  slow->Set({DnsSourceFromJson(named).value(), DnsSourceFromJson(second).value()});
  slow->Begin();
  began.acquire();
  slow->Stop();
  ends.release(2);
  slow.reset();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace kvcast::router
