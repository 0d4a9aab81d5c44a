// The bundled vectors decode as documented. They are recorded payloads (good), unusual payloads
// that the decoder must accept (tolerated), and payloads or single events that the decoder must
// refuse with a reason (rejected).
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "apps/conformance/conformance.h"
#include "apps/conformance/wire/wire_record.h"
#include "tests/support/kept_fields.h"
#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

using nlohmann::json;

struct Vector {
  std::string name;
  Payload payload;
  json expect;
};

std::vector<Vector> Load(const std::string& file) {
  std::vector<Vector> vectors;
  for (const std::string& line : VectorLines(file)) {
    const json object = json::parse(line);
    vectors.push_back({object.at("name").get<std::string>(),
                       FromHex(object.at("payload").get<std::string>()), object.at("expect")});
  }
  return vectors;
}

EventBatch ExpectedBatch(const Vector& vector) {
  const json record = {
      {"name", vector.name}, {"hex", ""}, {"decoded", vector.expect.at("decoded")}};
  const Result<tools::WireRecord> parsed = tools::ParseWireRecord(record.dump());
  EXPECT_TRUE(parsed.ok()) << vector.name << ": " << parsed.status().ToString();
  if (!parsed.ok()) return {};
  EXPECT_FALSE(parsed->unknown_fields) << vector.name;
  return parsed->decoded;
}

std::map<std::string, uint64_t> RejectsByName(const DecodeCounts& counts) {
  std::map<std::string, uint64_t> rejects;
  for (size_t i = 0; i < kRejectReasons; ++i) {
    if (counts.rejected[i] == 0) continue;
    rejects[std::string(RejectName(static_cast<Reject>(i)))] = counts.rejected[i];
  }
  return rejects;
}

TEST(WireVectors, GoodVectorsDecodeAndEncodeExactly) {
  tools::ConformanceReport report;
  const Status status = tools::RunWireConformance({VectorPath("good.jsonl")}, report);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_THAT(report.first_differences, testing::IsEmpty());
  EXPECT_GT(report.compared, 3000u);
  EXPECT_TRUE(report.ok());
}

TEST(WireVectors, ToleratedVectorsDecodeToTheStatedEvents) {
  for (const Vector& vector : Load("tolerated.jsonl")) {
    const Decoded decoded = Decode(vector.payload);
    ASSERT_TRUE(decoded.status.ok()) << vector.name << ": " << decoded.status.ToString();
    EXPECT_EQ(decoded.counts.rejected_total(), 0u) << vector.name;
    EXPECT_EQ(decoded.counts.unknown_fields, vector.expect.at("unknown_fields")) << vector.name;
    EXPECT_TRUE(SameBatch(decoded.batch, ExpectedBatch(vector))) << vector.name;
  }
}

TEST(WireVectors, RejectedPayloadsGiveAStatusAndAnEmptyBatch) {
  size_t seen = 0;
  for (const Vector& vector : Load("rejected.jsonl")) {
    if (!vector.expect.contains("status")) continue;
    const Decoded decoded = Decode(vector.payload);
    EXPECT_EQ(StatusCodeName(decoded.status.code()), vector.expect.at("status").get<std::string>())
        << vector.name;
    EXPECT_THAT(decoded.batch.events, testing::IsEmpty()) << vector.name;
    EXPECT_EQ(decoded.counts.decoded + decoded.counts.rejected_total(), 0u) << vector.name;
    ++seen;
  }
  EXPECT_GT(seen, 25u);
}

TEST(WireVectors, RejectedEventsAreCountedByReasonAndTheOthersAreDecoded) {
  size_t seen = 0;
  for (const Vector& vector : Load("rejected.jsonl")) {
    if (vector.expect.contains("status")) continue;
    const Decoded decoded = Decode(vector.payload);
    ASSERT_TRUE(decoded.status.ok()) << vector.name << ": " << decoded.status.ToString();
    const auto rejects = vector.expect.at("rejects").get<std::map<std::string, uint64_t>>();
    EXPECT_EQ(RejectsByName(decoded.counts), rejects) << vector.name;
    EXPECT_EQ(decoded.counts.unknown_fields, vector.expect.at("unknown_fields")) << vector.name;
    EXPECT_TRUE(SameBatch(decoded.batch, ExpectedBatch(vector))) << vector.name;
    ++seen;
  }
  EXPECT_GT(seen, 100u);
}

// The vectors have 16 of the 18 dialects: vllm-12 and kvcast-1 have no vectors.
TEST(WireVectors, CoverEveryDialectAndEveryRejectReason) {
  std::set<std::string> layouts;
  for (const std::string& line : VectorLines("good.jsonl")) {
    const std::string name = json::parse(line).at("name").get<std::string>();
    layouts.insert(name.substr(0, name.find('/')));
  }
  EXPECT_EQ(layouts.size(), 16u);
  std::set<std::string> reasons;
  for (const Vector& vector : Load("rejected.jsonl")) {
    if (vector.expect.contains("status")) continue;
    for (const auto& [reason, count] : vector.expect.at("rejects").items()) reasons.insert(reason);
  }
  EXPECT_EQ(reasons.size(), kRejectReasons);
}

}  // namespace
}  // namespace kvcast::wire
