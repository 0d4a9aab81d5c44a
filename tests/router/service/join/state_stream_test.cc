// The stream of a router's state. The reader takes a stream in pieces of any size. No damaged,
// shorter, longer or foreign stream is complete.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/join/state_stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace kvcast::router {
namespace {

std::string TextOf(const Descriptor& file) {
  std::string text(1 << 16, '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  EXPECT_GE(got, 0);
  text.resize(static_cast<size_t>(got));
  return text;
}

// Two shards. The second shard has two parts.
std::string TestStream() {
  StateStreamWriter writer;
  std::string stream = writer.Begin({.version = "1.2.3", .secret = 77, .shards = 2});
  stream += writer.Part("first shard");
  stream += writer.EndShard();
  stream += writer.Part("second ");
  stream += writer.Part("shard");
  stream += writer.EndShard();
  stream += writer.End();
  return stream;
}

struct ReadStream {
  Status status;
  bool complete = false;
  StateStreamHead head;
  std::vector<std::string> shards;
};

ReadStream Read(const std::string& stream, size_t cut = 0,
                uint64_t max_bytes = StateStreamReader::kMaxBytes) {
  ReadStream read;
  StateStreamReader reader(
      [&read](const StateStreamHead& head) {
        read.head = head;
        return Status();
      },
      max_bytes);
  read.status = reader.Add(stream.substr(0, cut));
  if (read.status.ok()) read.status = reader.Add(stream.substr(cut));
  read.complete = read.status.ok() && reader.complete();
  if (!read.complete) return read;
  for (const Descriptor& shard : reader.Take()) read.shards.push_back(TextOf(shard));
  return read;
}

TEST(StateStream, IsReadAtAnyCut) {
  const std::string stream = TestStream();
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    const ReadStream read = Read(stream, cut);
    ASSERT_TRUE(read.complete) << cut << ": " << read.status.ToString();
    EXPECT_EQ(read.head.version, "1.2.3");
    EXPECT_EQ(read.head.secret, 77u);
    EXPECT_EQ(read.shards, (std::vector<std::string>{"first shard", "second shard"}));
  }
}

TEST(StateStream, IsReadByteByByte) {
  StateStreamReader reader([](const StateStreamHead&) { return Status(); });
  for (const char byte : TestStream()) ASSERT_TRUE(reader.Add({&byte, 1}).ok());
  EXPECT_TRUE(reader.complete());
  EXPECT_EQ(TextOf(reader.Take()[1]), "second shard");
}

TEST(StateStream, AShorterStreamIsNotComplete) {
  const std::string stream = TestStream();
  for (size_t size = 0; size < stream.size(); ++size) {
    const ReadStream read = Read(stream.substr(0, size));
    EXPECT_TRUE(read.status.ok()) << size;
    EXPECT_FALSE(read.complete) << size;
  }
}

TEST(StateStream, ALongerStreamIsDamaged) {
  EXPECT_EQ(Read(TestStream() + "x").status.code(), StatusCode::kMalformed);
}

TEST(StateStream, EachChangedBitIsFound) {
  const std::string stream = TestStream();
  for (size_t bit = 0; bit < 8 * stream.size(); ++bit) {
    std::string changed = stream;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(Read(changed).complete) << bit;
  }
}

TEST(StateStream, AWrongChecksumIsDamage) {
  std::string stream = TestStream();
  stream.back() = static_cast<char>(stream.back() ^ 1);
  const ReadStream read = Read(stream);
  EXPECT_EQ(read.status.code(), StatusCode::kMalformed);
  EXPECT_EQ(read.status.message(), "the state is damaged");
}

TEST(StateStream, AnotherVersionAndAnotherByteOrderAreNamed) {
  for (const size_t at : {8, 12}) {
    std::string stream = TestStream();
    stream[at] = 9;
    const ReadStream read = Read(stream);
    EXPECT_EQ(read.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(read.status.message(), "another version or byte order of saved state");
  }
}

TEST(StateStream, OtherBytesAreRefused) {
  for (const std::string& text :
       {std::string(100, 'x'), std::string("{\"error\":\"no such path\"}"),
        std::string("kvcast\0\0", 8) + std::string(100, '\0')}) {
    EXPECT_EQ(Read(text).status.code(), StatusCode::kMalformed) << text;
  }
}

TEST(StateStream, ALargeHeadOrPartIsDamage) {
  std::string head = TestStream();
  head[18] = 1;  // 65,536 bytes more
  EXPECT_EQ(Read(head).status.code(), StatusCode::kMalformed);
  StateStreamWriter writer;
  std::string part = writer.Begin({.version = "", .secret = 0, .shards = 1});
  part += std::string("\0\0\0\x7F", 4);
  EXPECT_EQ(Read(part).status.code(), StatusCode::kMalformed);
}

TEST(StateStream, AShardWithoutBytesIsDamage) {
  StateStreamWriter writer;
  std::string stream = writer.Begin({.version = "", .secret = 0, .shards = 1});
  stream += writer.EndShard();
  EXPECT_EQ(Read(stream).status.code(), StatusCode::kMalformed);
}

TEST(StateStream, HasABound) {
  const std::string stream = TestStream();
  EXPECT_TRUE(Read(stream, 0, stream.size()).complete);
  const ReadStream read = Read(stream, 0, stream.size() - 1);
  EXPECT_EQ(read.status.code(), StatusCode::kLimit);
  EXPECT_EQ(read.status.message(), "the state is too large");
}

TEST(StateStream, TooManyShardsAreDamage) {
  StateStreamWriter writer;
  const std::string stream =
      writer.Begin({.version = "", .secret = 0, .shards = StateStreamReader::kMaxShards + 1});
  EXPECT_EQ(Read(stream).status.code(), StatusCode::kMalformed);
}

TEST(StateStream, AHeadThatIsNotAcceptedEndsTheStream) {
  StateStreamReader reader([](const StateStreamHead& head) {
    return head.secret == 77 ? Status(StatusCode::kInvalidArgument, "not this one") : Status();
  });
  EXPECT_EQ(reader.Add(TestStream()).message(), "not this one");
  EXPECT_FALSE(reader.complete());
}

}  // namespace
}  // namespace kvcast::router
