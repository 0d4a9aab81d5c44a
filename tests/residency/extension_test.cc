// KVX1 requests have the specified bytes. Parsing an encoded status gives the same status. Wrong
// bytes are refused.
// SPDX-License-Identifier: Apache-2.0
#include "src/residency/extension.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvcast::residency {
namespace {

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

PublisherStatus SomeStatus() {
  PublisherStatus status;
  status.epoch = {0x0102030405060708, 9};
  status.first_held = 5;
  status.next_seq = 12;
  status.has_digests = true;
  status.groups.push_back({{Tier::kGpu, 0, {1, 2, 3}}, std::nullopt});
  status.groups.push_back({{Tier::kGpu, 2, {4, 5, 6}}, std::nullopt});
  status.groups.push_back({{Tier::kCpu, 0, {7, 8, 9}}, std::nullopt});
  return status;
}

TEST(ExtensionRequest, IsSixteenBytes) {
  const ExtensionRequestFrame frame = EncodeRequest({Verb::kReplay, 0x010203, 0x1122334455667788});
  EXPECT_EQ(std::vector<uint8_t>(frame.begin(), frame.end()),
            Bytes(std::string("KVX1\x03\x01\x02\x03\x11\x22\x33\x44\x55\x66\x77\x88", 16)));
  EXPECT_EQ(ParseRequest(frame), (ExtensionRequest{Verb::kReplay, 0x010203, 0x1122334455667788}));
}

TEST(ExtensionRequest, OtherBytesAreNoRequest) {
  EXPECT_FALSE(ParseRequest({}));
  EXPECT_FALSE(ParseRequest(Bytes(std::string("KVX1\x01", 5))));
  EXPECT_FALSE(ParseRequest(Bytes("KVX2" + std::string(1, '\x01') + std::string(11, '\0'))));
  EXPECT_FALSE(ParseRequest(Bytes("KVX1" + std::string(1, '\x00') + std::string(11, '\0'))));
  EXPECT_FALSE(ParseRequest(Bytes("KVX1" + std::string(1, '\x05') + std::string(11, '\0'))));
  EXPECT_FALSE(ParseRequest(Bytes("KVX1" + std::string(1, '\x01') + std::string(12, '\0'))));
}

TEST(ExtensionRequest, LegacySnapshotIsAWord) {
  EXPECT_TRUE(IsLegacySnapshotRequest(Bytes("snapshot")));
  EXPECT_FALSE(IsLegacySnapshotRequest(Bytes("snapshots")));
  EXPECT_FALSE(IsLegacySnapshotRequest(Bytes("snapshoT")));
}

TEST(ExtensionRequest, BucketsAreRequestedInGroupsOfFour) {
  BucketMask buckets;
  buckets.set(6);
  EXPECT_EQ(ArgumentOf(buckets), 2u);
  EXPECT_EQ(BucketsOf(2).count(), 4u);
  EXPECT_TRUE(BucketsOf(2).test(4) && BucketsOf(2).test(7));
  EXPECT_TRUE(BucketsOf(~uint64_t{0}).all());
  EXPECT_EQ(ArgumentOf(BucketMask().set()), ~uint64_t{0});
}

TEST(PublisherStatus, IsTheSameAfterEncodingAndParsing) {
  PublisherStatus status = SomeStatus();
  Result<PublisherStatus> again = ParseStatus(EncodeStatus(status));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, status);
  DigestBuckets buckets{};
  buckets[17] = {1, 2, 3};
  status.groups[0].buckets = buckets;
  again = ParseStatus(EncodeStatus(status));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, status);
}

TEST(PublisherStatus, SaysThatThePublisherAnswersChallenges) {
  PublisherStatus status = SomeStatus();
  const std::vector<uint8_t> silent = EncodeStatus(status);
  status.answers_challenges = true;
  std::vector<uint8_t> bytes = EncodeStatus(status);
  EXPECT_EQ(silent[4], 1);
  EXPECT_EQ(bytes[4], 3);
  ASSERT_TRUE(ParseStatus(bytes).ok());
  EXPECT_EQ(*ParseStatus(bytes), status);
  bytes[4] = 4;  // an unknown flag
  EXPECT_FALSE(ParseStatus(bytes).ok());
  status = {};
  status.answers_challenges = true;
  EXPECT_EQ(*ParseStatus(EncodeStatus(status)), status) << "a publisher without digests";
}

TEST(PublisherStatus, EveryTruncationIsRefused) {
  std::vector<uint8_t> bytes = EncodeStatus(SomeStatus());
  while (!bytes.empty()) {
    bytes.pop_back();
    EXPECT_FALSE(ParseStatus(bytes).ok()) << bytes.size();
  }
}

TEST(PublisherStatus, BytesLeftOverAreRefused) {
  std::vector<uint8_t> bytes = EncodeStatus(SomeStatus());
  bytes.push_back(0);
  EXPECT_FALSE(ParseStatus(bytes).ok());
}

TEST(PublisherStatus, RefusesImpossibleValues) {
  const auto refused = [](auto change) {
    PublisherStatus status = SomeStatus();
    change(status);
    return !ParseStatus(EncodeStatus(status)).ok();
  };
  EXPECT_TRUE(refused([](auto& status) { status.first_held = status.next_seq + 1; }));
  EXPECT_TRUE(refused([](auto& status) { status.next_seq = uint64_t{1} << 63; }));
  EXPECT_TRUE(refused([](auto& status) { status.has_digests = false; }));
  EXPECT_TRUE(refused([](auto& status) { status.groups[1].digest.group = 64; }));
  EXPECT_TRUE(refused([](auto& status) { status.groups[1].digest.tier = static_cast<Tier>(3); }));
  EXPECT_TRUE(refused([](auto& status) { status.groups[1] = status.groups[0]; }));
  EXPECT_TRUE(refused([](auto& status) { std::swap(status.groups[1], status.groups[2]); }));
  EXPECT_TRUE(refused([](auto& status) { status.groups[0].buckets.emplace().fill({}); }));
  EXPECT_FALSE(refused([](auto&) {}));
}

}  // namespace
}  // namespace kvcast::residency
