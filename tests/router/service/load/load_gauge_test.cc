// The message of a load: its bytes, its bounds, and damaged messages.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/load/load_gauge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "router/service/load/load_peer.h"
#include "src/wire/writer.h"

namespace kvcast::router {
namespace {

LoadGauge Example() {
  return {.origin = "r1",
          .epoch = 7,
          .seq = 300,
          .period_ms = 100,
          .load = {.workers = {{"a", {1, 1000, 500000, 2, 4096}}, {"b", {0, 0, 0, 1, 16}}},
                   .arrivals_per_s = 1.5,
                   .work_s_per_s = 0.25}};
}

std::vector<uint8_t> Encode(const LoadGauge& gauge) {
  const auto bytes = EncodeGauge(gauge);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
  return bytes.ok() ? *bytes : std::vector<uint8_t>();
}

// The name of the reason, or "" if the message is accepted.
std::string Refusal(const std::vector<uint8_t>& bytes) {
  LoadGauge gauge;
  GaugeReject reject = GaugeReject::kMalformed;
  return DecodeGauge(bytes, gauge, reject) ? "" : std::string(GaugeRejectName(reject));
}

std::string Hex(const std::vector<uint8_t>& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

TEST(LoadGauge, HasTheBytesOfTheDocumentation) {
  EXPECT_EQ(Hex(Encode(Example())),
            "98"                  // array of 8
            "01"                  // version
            "a27231"              // "r1"
            "07"                  // epoch
            "cd012c"              // sequence number
            "64"                  // period
            "cb3ff8000000000000"  // arrivals
            "cb3fd0000000000000"  // work
            "92"                  // two workers
            "96a16101cd03e8ce0007a12002cd1000"
            "96a1620000000110");
}

TEST(LoadGauge, IsReadAsItWasWritten) {
  LoadGauge gauge;
  GaugeReject reject = GaugeReject::kMalformed;
  ASSERT_TRUE(DecodeGauge(Encode(Example()), gauge, reject));
  EXPECT_EQ(gauge, Example());
  LoadGauge empty = Example();
  empty.load = {};
  ASSERT_TRUE(DecodeGauge(Encode(empty), gauge, reject));
  EXPECT_EQ(gauge, empty);
}

TEST(LoadGauge, AnotherVersionIsRefusedAsSuch) {
  std::vector<uint8_t> bytes = Encode(Example());
  bytes[1] = 2;
  EXPECT_EQ(Refusal(bytes), "version");
  EXPECT_EQ(Refusal({0x91, 0x02}), "version") << "it may have another number of members";
  EXPECT_EQ(Refusal({0x91, 0x01}), "malformed");
  EXPECT_EQ(Refusal({}), "malformed");
}

TEST(LoadGauge, ValuesOutOfBoundsAreRefused) {
  const auto with = [](auto change) {
    LoadGauge gauge = Example();
    change(gauge);
    return Refusal(Encode(gauge));
  };
  EXPECT_EQ(with([](LoadGauge&) {}), "");
  EXPECT_EQ(with([](LoadGauge& g) { g.origin = ""; }), "malformed");
  EXPECT_EQ(with([](LoadGauge& g) { g.origin = std::string(kMaxOriginBytes, 'x'); }), "");
  EXPECT_EQ(with([](LoadGauge& g) { g.origin = std::string(kMaxOriginBytes + 1, 'x'); }),
            "malformed");
  EXPECT_EQ(with([](LoadGauge& g) { g.origin = "\xff"; }), "malformed");
  EXPECT_EQ(with([](LoadGauge& g) { g.period_ms = kMinLoadPeriodMs - 1; }), "malformed");
  EXPECT_EQ(with([](LoadGauge& g) { g.period_ms = kMinLoadPeriodMs; }), "");
  EXPECT_EQ(with([](LoadGauge& g) { g.period_ms = kMaxLoadPeriodMs; }), "");
  EXPECT_EQ(with([](LoadGauge& g) { g.period_ms = kMaxLoadPeriodMs + 1; }), "malformed");
  EXPECT_EQ(with([](LoadGauge& g) { g.load.workers[1].worker = "a"; }), "malformed")
      << "each worker occurs once";
  EXPECT_EQ(with([](LoadGauge& g) { std::swap(g.load.workers[0], g.load.workers[1]); }),
            "malformed");
  EXPECT_EQ(with([](LoadGauge& g) { g.load.workers[0].load = {}; }), "malformed");
}

// Returns a message with one worker. Load member number `member` is `value`, and the other load
// members are 1.
std::vector<uint8_t> WithMember(size_t member, uint64_t value) {
  std::vector<uint8_t> bytes;
  wire::Writer out(bytes);
  out.ArrayHead(8);
  out.Unsigned(1);
  out.Text("r");
  for (const uint64_t number : {1, 1, 100}) out.Unsigned(number);
  for (int i = 0; i < 2; ++i) out.Float(0);
  out.ArrayHead(1);
  out.ArrayHead(6);
  out.Text("w");
  for (size_t i = 0; i < 5; ++i) out.Unsigned(i == member ? value : 1);
  out.Close();
  return bytes;
}

TEST(LoadGauge, LoadsAreBoundedSoThatTheirSumsFit) {
  for (size_t member = 0; member < 5; ++member) {
    const uint64_t most = uint64_t{1} << (member == 0 || member == 3 ? 32 : 52);
    EXPECT_EQ(Refusal(WithMember(member, most)), "") << member;
    EXPECT_EQ(Refusal(WithMember(member, most + 1)), "malformed") << member;
    EXPECT_EQ(Refusal(WithMember(member, ~uint64_t{0})), "malformed") << member;
  }
}

TEST(LoadGauge, TheWriterLowersLoadsToTheBounds) {
  LoadGauge huge = Example();
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  huge.load.workers[0].load = {kHuge, kHuge, kHuge, kHuge, kHuge};
  huge.load.workers[1].load = {-1, -1, -1, 1, -1};
  huge.load.arrivals_per_s = std::numeric_limits<double>::infinity();
  huge.load.work_s_per_s = -1;
  LoadGauge gauge;
  GaugeReject reject = GaugeReject::kMalformed;
  ASSERT_TRUE(DecodeGauge(Encode(huge), gauge, reject));
  EXPECT_EQ(gauge.load.workers[0].load.prompt_tokens, int64_t{1} << 52);
  EXPECT_EQ(gauge.load.workers[1].load, (InFlight{0, 0, 0, 1, 0}));
  EXPECT_EQ(gauge.load.arrivals_per_s, 1e9);
  EXPECT_EQ(gauge.load.work_s_per_s, 0);
  huge.load.arrivals_per_s = std::numeric_limits<double>::quiet_NaN();
  ASSERT_TRUE(DecodeGauge(Encode(huge), gauge, reject));
  EXPECT_EQ(gauge.load.arrivals_per_s, 0);
}

TEST(LoadGauge, RatesAreFiniteAndNotNegative) {
  std::vector<uint8_t> bytes = Encode(Example());
  const size_t sign = 11;  // the first byte of the arrivals
  ASSERT_EQ(bytes[sign], 0x3f);
  bytes[sign] = 0xbf;
  EXPECT_EQ(Refusal(bytes), "malformed") << "-1.5";
  bytes[sign] = 0x7f;
  EXPECT_EQ(Refusal(bytes), "malformed") << "not a number";
}

TEST(LoadGauge, WorkersWithUnusableNamesAreLeftOut) {
  LoadGauge named = Example();
  named.load.workers[0].worker = std::string(1025, 'a');
  LoadGauge gauge;
  GaugeReject reject = GaugeReject::kMalformed;
  ASSERT_TRUE(DecodeGauge(Encode(named), gauge, reject));
  ASSERT_EQ(gauge.load.workers.size(), 1u);
  EXPECT_EQ(gauge.load.workers[0].worker, "b");
}

TEST(LoadGauge, AMessageHasABoundedSize) {
  LoadGauge large = Example();
  large.load.workers.clear();
  for (size_t i = 0; i < 8000; ++i) {
    std::string name(1000, 'x');
    name += std::to_string(10000 + i);
    large.load.workers.push_back({name, {.decodes = 1}});
  }
  EXPECT_EQ(EncodeGauge(large).status().code(), StatusCode::kExhausted);
  large.load.workers.resize(1000);
  EXPECT_EQ(Refusal(Encode(large)), "");
  large.load.workers.clear();
  for (size_t i = 0; i < kMaxGaugeWorkers + 1; ++i) {
    large.load.workers.push_back({std::to_string(100000 + i), {.decodes = 1}});
  }
  EXPECT_EQ(EncodeGauge(large).status().code(), StatusCode::kExhausted);
  large.load.workers.pop_back();
  EXPECT_EQ(Refusal(Encode(large)), "");
}

// A damaged message is refused, or it is another valid message. A valid message has exactly one
// form, except for the forms of its numbers.
TEST(LoadGauge, DamagedMessagesAreRefusedOrValid) {
  std::mt19937_64 random(1);
  const std::vector<uint8_t> good = Encode(Example());
  int refused = 0;
  constexpr int kRounds = 200000;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint8_t> bytes = good;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const auto at = static_cast<ptrdiff_t>(random() % bytes.size());
      switch (random() % 3) {
        case 0:
          bytes[static_cast<size_t>(at)] = static_cast<uint8_t>(random());
          break;
        case 1:
          bytes.erase(bytes.begin() + at);
          break;
        default:
          bytes.insert(bytes.begin() + at, static_cast<uint8_t>(random()));
          break;
      }
    }
    LoadGauge gauge;
    GaugeReject reject = GaugeReject::kOldGauge;
    if (!DecodeGauge(bytes, gauge, reject)) {
      ++refused;
      EXPECT_TRUE(reject == GaugeReject::kMalformed || reject == GaugeReject::kVersion);
      continue;
    }
    LoadGauge again;
    ASSERT_TRUE(DecodeGauge(Encode(gauge), again, reject)) << Hex(bytes);
    EXPECT_EQ(again, gauge) << Hex(bytes);
  }
  EXPECT_GT(refused, kRounds / 2);
}

TEST(LoadGauge, EachPrefixIsRefused) {
  const std::vector<uint8_t> good = Encode(Example());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(Refusal({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)}), "malformed");
  }
  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  EXPECT_EQ(Refusal(longer), "malformed");
}

TEST(LoadPeer, HasAnEndpointAndPerhapsAKey) {
  const std::string key(40, 'a');
  EXPECT_EQ(*ParseLoadPeer("tcp://b:1"), (LoadPeer{"tcp://b:1", ""}));
  EXPECT_EQ(*ParseLoadPeer("tcp://b:1,server_key=" + key), (LoadPeer{"tcp://b:1", key}));
  for (const std::string& text :
       {std::string(), std::string("b:1"), std::string("tcp://b:1,"), std::string("tcp://b:1,x"),
        std::string("inproc://b"), std::string("tcp://b:1,server_key="), "tcp://b:1,key=" + key}) {
    EXPECT_EQ(ParseLoadPeer(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace kvcast::router
