// Recordings of vLLM's own block hashes: the bundled set always, the full one where
// KVCAST_CONFORMANCE names the folder of the recordings.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "src/tools/conformance.h"

namespace kvcast::tools {
namespace {

void ExpectAllEqual(const std::string& path, uint64_t compared_min) {
  ConformanceReport report;
  const Status status = RunHashConformance({path}, report);
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (const std::string& difference : report.first_differences) ADD_FAILURE() << difference;
  EXPECT_GE(report.compared, compared_min);
  EXPECT_EQ(report.equal, report.compared);
  EXPECT_EQ(report.unsupported, 0u);
}

TEST(GoldenSet, BundledRecordings) {
  ExpectAllEqual(KVCAST_SOURCE_DIR "/tests/data/hash/block_hashes.jsonl", 600);
}

// Tagged extra keys, LoRA paths, and hashes that cover the tokens behind their blocks.
TEST(GoldenSet, BundledRecordingsOfVllm033) {
  ExpectAllEqual(KVCAST_SOURCE_DIR "/tests/data/hash/block_hashes_vllm_0_33.jsonl", 600);
}

TEST(GoldenSet, AllRecordings) {
  const char* folder = std::getenv("KVCAST_CONFORMANCE");
  if (!folder) GTEST_SKIP() << "KVCAST_CONFORMANCE is not set";
  const std::string hashes = std::string(folder) + "/hashes";
  if (!std::filesystem::exists(hashes)) GTEST_SKIP() << hashes << " does not exist";
  ExpectAllEqual(hashes, 1);
}

// The recordings of vLLM 0.33 lie beside the others.
TEST(GoldenSet, AllRecordingsOfVllm033) {
  const char* folder = std::getenv("KVCAST_CONFORMANCE");
  if (!folder) GTEST_SKIP() << "KVCAST_CONFORMANCE is not set";
  const std::string hashes = std::string(folder) + "/../vllm-0.33/hashes";
  if (!std::filesystem::exists(hashes)) GTEST_SKIP() << hashes << " does not exist";
  ExpectAllEqual(hashes, 8944);
}

}  // namespace
}  // namespace kvcast::tools
