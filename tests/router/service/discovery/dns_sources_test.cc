// Each target of a looked up name is a source. While a lookup fails, the sources stay.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/dns_sources.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <semaphore>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "router/service/api/source_json.h"
#include "router/service/discovery/dns_client.h"
#include "router/service/router_service.h"
#include "src/base/descriptor.h"
#include "src/base/mutex.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/log_lines.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::testing::LogLines;
using Json = nlohmann::json;
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
  for (size_t offset = 0; offset < whole.size(); ++offset) {
    for (int value = 0; value < 256; ++value) {
      Bytes damaged = whole;
      damaged[offset] = static_cast<uint8_t>(value);
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

// A query as a name server sees it.
struct DnsQuery {
  bool over_tcp = false;
  std::string name;
  int type = 0;
  int udp_bytes = 0;  // the longest answer over UDP that the client takes; 0: not in the query
  Bytes begin;        // header and question

  // Returns an answer with these flags and with the records of these addresses.
  Bytes Answer(int flags, const std::vector<Bytes>& addresses = {}) const {
    Bytes answer = begin;
    answer[2] = static_cast<uint8_t>(flags >> 8);
    answer[3] = static_cast<uint8_t>(flags);
    answer[6] = static_cast<uint8_t>(addresses.size() >> 8);
    answer[7] = static_cast<uint8_t>(addresses.size());
    answer[11] = 0;
    for (const Bytes& address : addresses) {
      const uint8_t of_name[] = {0xC0, 12, 0, ns_t_a, 0, ns_c_in, 0, 0, 0, 60, 0, 4};
      answer.insert(answer.end(), std::begin(of_name), std::end(of_name));
      answer.insert(answer.end(), address.begin(), address.end());
    }
    return answer;
  }
};

// Flags of an answer.
constexpr int kFound = 0x8180;
constexpr int kEmpty = kFound | 0x0400;  // authoritative
constexpr int kFails = kFound | ns_r_servfail;
constexpr int kNoSuchName = kFound | ns_r_nxdomain;
constexpr int kTooLong = kFound | 0x0200;
constexpr int kElsewhere = kFound & ~0x0080;  // the server does not ask other servers

DnsQuery ReadQuery(std::span<const uint8_t> message, bool over_tcp) {
  DnsQuery query = {.over_tcp = over_tcp};
  ns_msg parsed;
  ns_rr record;
  EXPECT_EQ(ns_initparse(message.data(), static_cast<int>(message.size()), &parsed), 0);
  EXPECT_EQ(ns_parserr(&parsed, ns_s_qd, 0, &record), 0);
  query.name = ns_rr_name(record);
  query.type = ns_rr_type(record);
  size_t end = NS_HFIXEDSZ;
  while (message[end] != 0) end += size_t{message[end]} + 1;
  query.begin.assign(message.begin(), message.begin() + static_cast<long>(end) + 1 + NS_QFIXEDSZ);
  if (ns_parserr(&parsed, ns_s_ar, 0, &record) == 0) query.udp_bytes = ns_rr_class(record);
  return query;
}

// Answers over UDP and TCP, at the same port.
class NameServer {
 public:
  // nullopt: the server stays silent. The function is called in a thread of the server.
  using AnswerTo = std::function<std::optional<Bytes>(const DnsQuery&)>;
  // If `accepts` is false, no lookup can connect over TCP.
  explicit NameServer(AnswerTo answer_to, bool accepts = true)
      : answer_to_(std::move(answer_to)), accepts_(accepts) {
    while (!Listen()) {
    }
    if (!accepts) FillQueue();
    thread_ = std::thread([this] { Run(); });
  }
  ~NameServer() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }

 private:
  sockaddr* any() { return reinterpret_cast<sockaddr*>(&address_); }
  // False: another program uses the port for TCP.
  bool Listen() {
    address_ = {};
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    udp_ = Descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(udp_.get(), any(), size), 0);
    EXPECT_EQ(getsockname(udp_.get(), any(), &size), 0);
    tcp_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return bind(tcp_.get(), any(), size) == 0 && listen(tcp_.get(), accepts_ ? 8 : 0) == 0;
  }
  // One client fills the queue of the TCP socket. The kernel then drops the packets of all other
  // clients.
  void FillQueue() {
    clients_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(clients_.back().get(), any(), sizeof(address_)), 0);
    pollfd waits = {tcp_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&waits, 1, -1), 1);
  }
  void Run() {
    while (true) {
      const short events = accepts_ ? POLLIN : 0;
      pollfd waits[] = {{stop_.get(), POLLIN, 0}, {udp_.get(), POLLIN, 0}, {tcp_.get(), events, 0}};
      if (poll(waits, std::size(waits), -1) < 0 || waits[0].revents != 0) return;
      if (waits[1].revents != 0) AnswerDatagram();
      if (waits[2].revents != 0) AnswerClient();
    }
  }
  void AnswerDatagram() {
    uint8_t message[NS_PACKETSZ];
    sockaddr_in from = {};
    socklen_t size = sizeof(from);
    auto* const client = reinterpret_cast<sockaddr*>(&from);
    const ssize_t bytes = recvfrom(udp_.get(), message, sizeof(message), 0, client, &size);
    if (bytes <= 0) return;
    const auto answer = answer_to_(ReadQuery({message, static_cast<size_t>(bytes)}, false));
    if (answer) (void)sendto(udp_.get(), answer->data(), answer->size(), 0, client, size);
  }
  void AnswerClient() {
    clients_.emplace_back(accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int client = clients_.back().get();
    uint8_t length[2] = {};
    if (recv(client, length, sizeof(length), MSG_WAITALL) != sizeof(length)) return;
    Bytes message(ns_get16(length));
    const ssize_t bytes = recv(client, message.data(), message.size(), MSG_WAITALL);
    if (bytes != static_cast<ssize_t>(message.size())) return;
    const auto answer = answer_to_(ReadQuery(message, true));
    if (!answer) return;
    Bytes sent = {static_cast<uint8_t>(answer->size() >> 8), static_cast<uint8_t>(answer->size())};
    sent.insert(sent.end(), answer->begin(), answer->end());
    (void)send(client, sent.data(), sent.size(), MSG_NOSIGNAL);
  }

  const AnswerTo answer_to_;
  const bool accepts_;
  sockaddr_in address_ = {};
  Descriptor udp_, tcp_;
  Descriptor stop_{eventfd(0, EFD_CLOEXEC)};
  std::vector<Descriptor> clients_;
  std::thread thread_;
};

// The resolver takes these texts instead of the search domains and the options of /etc/resolv.conf.
// It reads them once, at the first lookup of the process.
const bool kConfigured = setenv("LOCALDOMAIN", "a.test b.test c.test", 0) == 0 &&
                         setenv("RES_OPTIONS", "ndots:2", 0) == 0;

struct DnsClientTest : ::testing::Test {
  DnsClientTest() { EXPECT_TRUE(kConfigured); }
  static Result<std::vector<SourceTarget>> LookUp(const NameServer& server,
                                                  const std::string& name) {
    return DnsClient::Create(server.address())->Look(name);
  }
  // Repeats the lookup until it succeeds. On a busy machine the server may be too slow.
  static std::vector<SourceTarget> Targets(const NameServer& server, const std::string& name) {
    std::vector<SourceTarget> targets;
    EXPECT_TRUE(Eventually([&] {
      auto result = LookUp(server, name);
      if (result.ok()) targets = std::move(result).value();
      return result.ok();
    }));
    return targets;
  }
  // Waits for the end of a lookup of `server`, then ends the server.
  static Status StatusOfLookUp(std::unique_ptr<NameServer> server) {
    auto lookup = std::async(std::launch::async, [&] { return LookUp(*server, "engines.test."); });
    const bool has_ended = Eventually(
        [&] { return lookup.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    EXPECT_TRUE(has_ended);
    server.reset();  // ends a lookup that has no time limit
    return lookup.get().status();
  }
};

// The first addresses of 10.0.0.0/8.
std::vector<Bytes> Addresses(size_t count) {
  std::vector<Bytes> addresses;
  for (size_t i = 0; i < count; ++i) {
    addresses.push_back({10, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)});
  }
  return addresses;
}

TEST_F(DnsClientTest, AServerThatIsSilentOverTcpIsAnError) {
  const Status status = StatusOfLookUp(std::make_unique<NameServer>([](const DnsQuery& query) {
    return query.over_tcp ? std::nullopt : std::optional(query.Answer(kTooLong));
  }));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "engines.test.: no name server gave an answer over TCP");
}

TEST_F(DnsClientTest, AServerWithoutTcpIsAnError) {
  const Status status = StatusOfLookUp(std::make_unique<NameServer>(
      [](const DnsQuery& query) { return query.Answer(kTooLong); }, false));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST_F(DnsClientTest, AnAnswerOverTcpHasAtMost65535Bytes) {
  const std::vector<Bytes> addresses = Addresses(4000);
  const NameServer server([&](const DnsQuery& query) {
    if (!query.over_tcp) return query.Answer(kTooLong, Addresses(1));
    Bytes answer = query.Answer(kFound, addresses);
    const size_t data_bytes = 65535 - answer.size() - 11;
    const Bytes filler = {0,
                          0,
                          ns_t_txt,
                          0,
                          ns_c_in,
                          0,
                          0,
                          0,
                          60,
                          static_cast<uint8_t>(data_bytes >> 8),
                          static_cast<uint8_t>(data_bytes)};
    answer[11] = 1;
    answer.insert(answer.end(), filler.begin(), filler.end());
    answer.resize(65535);
    return answer;
  });
  EXPECT_EQ(Targets(server, "engines.test.").size(), addresses.size());
}

TEST_F(DnsClientTest, AnAnswerOverTcpThatCannotBeUsedIsAnError) {
  const std::vector<std::function<Bytes(const DnsQuery&)>> answers = {
      [](const DnsQuery& query) { return query.Answer(kTooLong, Addresses(1)); },
      [](const DnsQuery& query) { return query.Answer(kFails); },
      [](const DnsQuery& query) { return query.Answer(kFound & 0x7FFF, Addresses(1)); },
      [](const DnsQuery&) { return Bytes(); },
      [](const DnsQuery&) { return Bytes{1}; },
      [](const DnsQuery& query) { return Bytes(query.begin.begin(), query.begin.begin() + 12); },
      [](const DnsQuery& query) {
        Bytes of_other_id = query.Answer(kFound, Addresses(1));
        of_other_id[1] ^= 1;
        return of_other_id;
      },
      [](const DnsQuery& query) {
        Bytes of_other_name = query.Answer(kFound, Addresses(1));
        of_other_name[13] = 'x';
        return of_other_name;
      }};
  for (size_t i = 0; i < answers.size(); ++i) {
    const NameServer server([&](const DnsQuery& query) {
      return query.over_tcp ? answers[i](query) : query.Answer(kTooLong);
    });
    EXPECT_EQ(LookUp(server, "engines.test.").status().code(), StatusCode::kUnavailable) << i;
  }
}

// Many servers leave the records out of a truncated answer.
TEST_F(DnsClientTest, ATruncatedAnswerInASearchDomainIsRepeatedOverTcp) {
  const NameServer server([](const DnsQuery& query) {
    if (query.name != "engines.b.test") return query.Answer(kNoSuchName);
    return query.over_tcp ? query.Answer(kFound, {{10, 0, 0, 1}}) : query.Answer(kTooLong);
  });
  EXPECT_THAT(Targets(server, "engines"), ElementsAre(SourceTarget{"10.0.0.1", 0}));
}

TEST_F(DnsClientTest, AnAnswerOverUdpMayHave1232Bytes) {
  const NameServer server([](const DnsQuery& query) -> std::optional<Bytes> {
    if (query.over_tcp) return std::nullopt;
    return query.udp_bytes == 1232 ? query.Answer(kFound, Addresses(70)) : query.Answer(kTooLong);
  });
  EXPECT_EQ(Targets(server, "engines.test.").size(), 70u);
}

TEST_F(DnsClientTest, AServerMayRefuseTheSizeOfAnswersOverUdp) {
  for (const int code : {ns_r_formerr, ns_r_notimpl, ns_r_servfail}) {
    const NameServer server([code](const DnsQuery& query) {
      return query.udp_bytes != 0 ? query.Answer(kFound | code)
                                  : query.Answer(kFound, Addresses(2));
    });
    EXPECT_EQ(Targets(server, "engines.test.").size(), 2u) << code;
  }
}

// The C library keeps only the first six search domains.
TEST(DnsClient, AllSearchDomainsAreRead) {
  using Domains = std::vector<std::string>;
  EXPECT_EQ(SearchDomainsOf("nameserver 10.0.0.1\nsearch a b.c d e f g h\n# search x\n"),
            (Domains{"a", "b.c", "d", "e", "f", "g", "h"}));
  EXPECT_EQ(SearchDomainsOf("search a b\ndomain c ; main site\noptions ndots:5"), Domains{"c"});
  EXPECT_EQ(SearchDomainsOf(""), Domains{});
}

// A server that refers to other servers may have no answer of its own.
TEST_F(DnsClientTest, AReferralIsAnError) {
  const NameServer server([](const DnsQuery& query) {
    Bytes answer = query.Answer(kElsewhere);
    const uint8_t glue[] = {0, 0, ns_t_a, 0, ns_c_in, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1};
    answer[11] = 1;
    answer.insert(answer.end(), std::begin(glue), std::end(glue));
    return answer;
  });
  EXPECT_EQ(LookUp(server, "engines.test.").status().code(), StatusCode::kUnavailable);
}

// A server that knows some names. It writes down the names for which it was asked.
struct KnownNames {
  // The flags of the answers. An answer with kFound has an address.
  explicit KnownNames(std::map<std::string, int> flags) : flags_of(std::move(flags)) {}
  std::optional<Bytes> Answer(const DnsQuery& query) {
    const MutexLock lock(mutex);
    if (asked.empty() || asked.back() != query.name) asked.push_back(query.name);
    const auto known = flags_of.find(query.name);
    const int flags = known == flags_of.end() ? kNoSuchName : known->second;
    if (flags == kSilent) return std::nullopt;
    return query.Answer(flags, Addresses(flags == kFound ? 1 : 0));
  }
  // Looks the name up. Returns the names for which the server was asked.
  std::vector<std::string> LookUp(const std::string& name) {
    const auto look_up = [&] {
      {
        const MutexLock lock(mutex);
        asked.clear();
      }
      return DnsClientTest::LookUp(server, name).ok();
    };
    EXPECT_TRUE(Eventually(look_up)) << name;
    const MutexLock lock(mutex);
    return asked;
  }

  static constexpr int kSilent = 0;
  const std::map<std::string, int> flags_of;
  Mutex mutex;
  std::vector<std::string> asked KV_GUARDED_BY(mutex);
  NameServer server{[this](const DnsQuery& query) { return Answer(query); }};
};

// If the name has at least two dots, the name itself comes first.
TEST_F(DnsClientTest, TheOrderOfTheSearchDomains) {
  KnownNames known({{"x.y", kFound}, {"x.y.z.b.test", kFound}, {"full.a.test", kFound}});
  EXPECT_THAT(known.LookUp("x.y"), ElementsAre("x.y.a.test", "x.y.b.test", "x.y.c.test", "x.y"));
  EXPECT_THAT(known.LookUp("x.y.z"), ElementsAre("x.y.z", "x.y.z.a.test", "x.y.z.b.test"));
  EXPECT_THAT(known.LookUp("full."), ElementsAre("full"));
}

TEST_F(DnsClientTest, AnErrorInASearchDomainDoesNotEndTheLookup) {
  KnownNames known({{"first.a.test", kFails},
                    {"first.b.test", kFound},
                    {"empty.a.test", kFails},
                    {"empty.b.test", kEmpty},
                    {"none.a.test", kFails},
                    {"x.y.z.a.test", kFails}});
  EXPECT_EQ(Targets(known.server, "first").size(), 1u);
  EXPECT_THAT(Targets(known.server, "empty"), IsEmpty());
  EXPECT_EQ(LookUp(known.server, "none").status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(Targets(known.server, "x.y.z"), IsEmpty());  // the name itself comes first
}

// Each name without an answer costs seconds.
TEST_F(DnsClientTest, AfterASilentSearchDomainOnlyTheLastNameIsAskedFor) {
  KnownNames known({{"x.y.a.test", KnownNames::kSilent}, {"x.y", kFound}});
  EXPECT_THAT(known.LookUp("x.y"), ElementsAre("x.y.a.test", "x.y"));
}

Json Template() {
  return {{"lookup", "engines.test"},
          {"source",
           {{"name", "engine-{host}"},
            {"endpoint", "tcp://{host}:5557"},
            {"replay_endpoint", "tcp://{host}:5657"}}}};
}

TEST(DnsSourceFromJson, FillsInTheHostAndThePort) {
  Json given = Template();
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
  const auto message = [](const Json& given) {
    return DnsSourceFromJson(given).status().message();
  };
  EXPECT_EQ(message(Json::array()), "must be an object");
  EXPECT_EQ(message({{"source", Json::object()}}), "lookup: required");
  EXPECT_EQ(message({{"lookup", "x"}}), "source: must be an object");
  Json given = Template();
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
  Json named = {{"lookup", "engines.test"},
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
  Json second = named;
  second["lookup"] = "second.test";
  slow->Set({DnsSourceFromJson(named).value(), DnsSourceFromJson(second).value()});
  slow->Begin();
  began.acquire();
  slow->Stop();
  ends.release(2);
  slow.reset();
  EXPECT_EQ(calls, 1);
}

// A lookup may take seconds, and so may the registration of its targets as sources.
TEST(DnsSourcesSave, TheLastSaveDoesNotWaitForALookup) {
  const NameServer server([](const DnsQuery& query) { return query.Answer(kFound, Addresses(1)); });
  stream::TemporaryFolder folder;
  LogLines lines{LogLevel::kDebug};
  std::binary_semaphore began(0), ends(0);
  RouterOptions options;
  options.log = &lines.log();
  options.state.folder = folder.File("state");
  options.state.period_s = 3600;  // saves at the end only
  options.dns_server = server.address();
  options.dns_sources = {
      DnsSourceFromJson({{"lookup", "engines.test."},
                         {"source", {{"name", "e-{host}"}, {"endpoint", "nats:m/{host}"}}}})
          .value()};
  options.open_log = [&](const std::string&, const OpenLogOptions&) -> Result<OpenLog> {
    began.release();
    ends.acquire();
    return Status(StatusCode::kUnavailable, "the test has no log");
  };
  auto service = RouterService::Start(options);
  ASSERT_TRUE(service.ok()) << service.status().ToString();
  began.acquire();
  std::thread stop([&] { (*service)->Stop(); });
  EXPECT_TRUE(Eventually([&] { return !lines.With({"state_saved"}).empty(); }));
  ends.release();
  stop.join();
}

}  // namespace
}  // namespace kvcast::router
