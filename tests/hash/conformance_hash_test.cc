// The conformance run of block hashes counts comparisons and refuses bad records.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "apps/conformance/conformance.h"

namespace kvcast::tools {
namespace {

using ::testing::HasSubstr;

constexpr char kNoneHash[] = "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c";
constexpr char kBlock0[] = "6358e31578a64b75ebe28cdb99d3beae65de82a2087321dc6ec84ae048faaaa6";

// A record of the tokens 0..15 under seed "0". A test can replace each part by a wrong value.
struct Line {
  std::string algo = R"("sha256")";
  std::string seed = R"("0")";
  std::string block_size = "16";
  std::string tokens = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]";
  std::string none_hash = kNoneHash;
  std::string block_hashes = std::string("[\"") + kBlock0 + "\"]";
  std::string int64 = "[7982712666671721126]";
  std::string more = "";

  std::string Json() const {
    return R"({"name":"one","algo":)" + algo + R"(,"pythonhashseed":)" + seed +
           R"(,"block_size":)" + block_size + R"(,"tokens":)" + tokens + R"(,"none_hash":")" +
           none_hash + R"(","block_hashes":)" + block_hashes + R"(,"int64":)" + int64 + more + "}";
  }
};

class ConformanceHash : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "kvcast_conformance_hash_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << content;
    return path;
  }
  Status Run(const Line& line) { return RunOn(Write("block_hashes.jsonl", line.Json() + "\n")); }
  Status RunOn(const std::string& path) {
    report_ = {};
    return RunHashConformance({path}, report_);
  }
  void ExpectDifference(const Line& line, const std::string& text) {
    ASSERT_TRUE(Run(line).ok());
    EXPECT_LT(report_.equal, report_.compared);
    EXPECT_FALSE(report_.ok());
    ASSERT_EQ(report_.first_differences.size(), 1u);
    EXPECT_THAT(report_.first_differences[0], HasSubstr("block_hashes.jsonl: one: " + text));
  }
  void ExpectMalformed(const std::string& content, const std::string& text) {
    const Status status = RunOn(Write("block_hashes.jsonl", content));
    EXPECT_EQ(status.code(), StatusCode::kMalformed) << content;
    EXPECT_THAT(status.message(), HasSubstr("block_hashes.jsonl:"));
    EXPECT_THAT(status.message(), HasSubstr(text));
  }

  std::string folder_;
  ConformanceReport report_;
};

TEST_F(ConformanceHash, CountsOneCheckPerRecordedResult) {
  ASSERT_TRUE(Run({}).ok());
  EXPECT_EQ(report_.files, 1u);
  EXPECT_EQ(report_.compared, 3u);  // NONE_HASH, digest, int64
  EXPECT_TRUE(report_.ok());
}

TEST_F(ConformanceHash, ReportsEachKindOfDifference) {
  ExpectDifference({.seed = R"("1")"}, "NONE_HASH is");
  ExpectDifference({.tokens = "[1,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]"}, "block 0: digest is");
  ExpectDifference({.int64 = "[7982712666671721127]"}, "block 0: int64");
  ExpectDifference({.block_hashes = "[]"}, "block_hashes: 1 entries, recorded 0");
  ExpectDifference({.more = R"(,"extra_keys":[["salt"]])"}, "block 0: extra keys");
  ExpectDifference({.more = R"(,"event_extra_keys":[["salt"]])"}, "block 0: event's extra keys");
  ExpectDifference({.more = R"(,"lookahead_token_ids":[[16]])"}, "block 0: lookahead tokens");
  ExpectDifference({.more = R"(,"preimages_hex":["00"])"}, "block 0: preimage");
  ExpectDifference({.more = R"(,"none_hash_preimage_hex":"00")"}, "NONE_HASH preimage");
}

// The run uses the hash form that the record states. With one lookahead token, a prompt of 16
// tokens has no block hash.
TEST_F(ConformanceHash, ReadsTheFormOfTheHashes) {
  ExpectDifference({.more = R"(,"hash_lookahead_tokens":1)"},
                   "block_hashes: 0 entries, recorded 1");
  ExpectDifference({.more = R"(,"salt":"s","extra_key_scheme":"tagged","extra_keys":[["s"]])"},
                   "block 0: digest is");
}

TEST_F(ConformanceHash, TakesARandomNoneHashFromTheRecord) {
  const std::string random_none_hash(64, '1');
  // SHA-256 of the same block under NONE_HASH = 32 x 0x11, computed by Python.
  const std::string hashes =
      R"(["3e6c7ab906c4068e7dcde30db5e18313c03067b735bfd14fae70c47be92ded30"])";
  for (const std::string seed : {"null", R"("random")"}) {
    ASSERT_TRUE(Run({.seed = seed,
                     .none_hash = random_none_hash,
                     .block_hashes = hashes,
                     .int64 = "[12569762596463177008]"})
                    .ok());
    EXPECT_TRUE(report_.ok());
    EXPECT_EQ(report_.compared, 2u);  // the run takes NONE_HASH from the record
  }
}

TEST_F(ConformanceHash, AnUnsetSeedMayAlsoMeanTheDefaultText) {
  ASSERT_TRUE(Run({.seed = "null",
                   .none_hash = "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
                   .block_hashes =
                       R"(["fe8fa5dda3210d0ca2031e37cbe3b001186773cd1c710beb2d45fcb51d434798"])",
                   .int64 = "[3262291359910021016]"})
                  .ok());
  EXPECT_EQ(report_.compared, 3u);
  EXPECT_TRUE(report_.ok());
}

TEST_F(ConformanceHash, AnUnknownAlgorithmIsUnsupported) {
  ASSERT_TRUE(Run({.algo = R"("blake3")"}).ok());
  EXPECT_EQ(report_.unsupported, 1u);
  EXPECT_FALSE(report_.ok());
}

TEST_F(ConformanceHash, MalformedFilesAreNamedWithTheirLine) {
  const std::string good = Line{}.Json() + "\n";
  ExpectMalformed("", "no block-hash record");
  ExpectMalformed(good + "{\"algo\":", ":2: not JSON");
  ExpectMalformed("[1]", ":1: not a JSON object");
  ExpectMalformed("{}", "missing");
  ExpectMalformed(Line{.algo = "7"}.Json(), "algo: not a string");
  ExpectMalformed(Line{.block_size = "0"}.Json(), "block_size: not positive");
  ExpectMalformed(Line{.block_size = "-16"}.Json(), "block_size: not positive");
  ExpectMalformed(Line{.block_size = "1.5"}.Json(), "block_size");
  ExpectMalformed(Line{.tokens = "null"}.Json(), "tokens: missing");
  ExpectMalformed(Line{.tokens = "[\"a\"]"}.Json(), "tokens");
  ExpectMalformed(Line{.tokens = "[18446744073709551615]"}.Json(), "tokens");
  ExpectMalformed(Line{.none_hash = "abc"}.Json(), "none_hash: odd");
  ExpectMalformed(Line{.none_hash = "zz"}.Json(), "none_hash: not hex");
  ExpectMalformed(Line{.int64 = "7"}.Json(), "int64: not a list");
  ExpectMalformed(Line{.more = R"(,"mm":[{"identifier":"a","offset":1}])"}.Json(),
                  "mm: length: missing");
  ExpectMalformed(Line{.more = R"(,"mm":[3])"}.Json(), "mm: not an object");
  ExpectMalformed(Line{.more = R"(,"extra_keys":[[{"x":1}]])"}.Json(), "extra_keys");
  ExpectMalformed(Line{.more = R"(,"extra_key_scheme":"signed")"}.Json(), "extra_key_scheme");
  ExpectMalformed(Line{.more = R"(,"hash_lookahead_tokens":9)"}.Json(), "hash_lookahead_tokens");
  ExpectMalformed(Line{.more = R"(,"prompt_embeds_float32_rows_hex":["00","0000"])"}.Json(),
                  "rows differ");
  ExpectMalformed(Line{.more = R"(,"prompt_embeds_float32_rows_hex":[""])"}.Json(), "no rows");
}

TEST_F(ConformanceHash, ANoneHashOfAnImpossibleSizeIsNamed) {
  const Status status = Run({.seed = "null", .none_hash = std::string(66, '1')});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("block_hashes.jsonl:1: "));
}

TEST_F(ConformanceHash, AMissingPathIsNamed) {
  const Status status = RunOn(folder_ + "/absent");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/absent"));
}

TEST_F(ConformanceHash, FoldersAreWalkedForFilesOfThisClass) {
  std::filesystem::create_directories(folder_ + "/deep/er");
  Write("deep/er/other_name.jsonl", Line{}.Json() + "\n");
  Write("block_hashes.jsonl", Line{}.Json() + "\n");
  Write("vectors.jsonl", "{\"hex\":\"90\"}\n");
  Write("producers.json", "{}");
  ASSERT_TRUE(RunOn(folder_).ok());
  EXPECT_EQ(report_.files, 2u);
  EXPECT_TRUE(report_.ok());
}

TEST_F(ConformanceHash, AFolderWithoutRecordsIsNamed) {
  Write("vectors.jsonl", "{\"hex\":\"90\"}\n");
  const Status status = RunOn(folder_);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(folder_));
}

}  // namespace
}  // namespace kvcast::tools
