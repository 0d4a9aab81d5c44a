// ReadFile returns the content of plain, gzip and zstd files. ReadFile refuses damaged files and
// files that are too large. WriteFile replaces a file. SplitLines drops line ends.
// SPDX-License-Identifier: Apache-2.0
#include "apps/support/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>

namespace kvcast::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Write(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string Gzip(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/packed.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string Zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

// The text is long and varied enough for several output chunks.
std::string LongText() {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += std::to_string(i * 7919) + "\n";
  return text;
}

TEST(ReadFile, ReadsPlainGzipAndZstdAlike) {
  const std::string text = LongText();
  for (const std::string& content : {text, Gzip(text), Zstd(text)}) {
    const auto read = ReadFile(Write("content", content));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, text);
  }
}

TEST(ReadFile, CutShortCompressedFileIsMalformed) {
  for (const std::string& packed : {Gzip(LongText()), Zstd(LongText())}) {
    const auto read = ReadFile(Write("cut", packed.substr(0, packed.size() / 2)));
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.status().code(), StatusCode::kMalformed);
    EXPECT_THAT(read.status().message(), HasSubstr("cut"));
  }
}

TEST(ReadFile, RefusesFilesThatAreLargerThanTheLimitAfterDecompression) {
  const std::string text(1000, 'a');
  for (const std::string& content : {text, Gzip(text), Zstd(text)}) {
    EXPECT_TRUE(ReadFile(Write("limit", content), 1000).ok());
    const auto read = ReadFile(Write("limit", content), 999);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.status().code(), StatusCode::kLimit);
  }
}

TEST(ReadFile, FolderAndMissingFileAreErrors) {
  EXPECT_EQ(ReadFile(::testing::TempDir()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadFile("/nonexistent/file").status().code(), StatusCode::kNotFound);
}

TEST(WriteFile, ReplacesTheFile) {
  const std::string path = Write("replaced", "a longer text");
  ASSERT_TRUE(WriteFile(path, "short\n").ok());
  EXPECT_EQ(ReadFile(path).value(), "short\n");
}

TEST(WriteFile, NamesThePathThatCannotBeWritten) {
  const Status status = WriteFile("/nonexistent/file", "text");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("/nonexistent/file"));
}

TEST(SplitLines, DropsLineEndsAndTheLastEmptyLine) {
  EXPECT_THAT(SplitLines("a\r\n\nb\n"), ElementsAre("a", "", "b"));
  EXPECT_THAT(SplitLines("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(SplitLines(""), ElementsAre());
}

}  // namespace
}  // namespace kvcast::tools
