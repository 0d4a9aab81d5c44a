// Random blocks have the hashes that Python's pickle, hashlib, cbor2 and xxhash compute.
//
// KVCAST_PYTHON names the interpreter (default /usr/bin/python3). KVCAST_TEST_SEED gives the seed.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/hash/hash_testing.h"
#include "tests/support/setting.h"
#include "tests/support/source_dir.h"

namespace kvcast::testing {
namespace {

constexpr size_t kSmallBlocks = 2000;
constexpr size_t kLargeBlocks = 60;

struct RandomBlock {
  Digest parent;
  std::vector<TokenId> tokens;
  ExtraKeys keys;
  std::vector<uint32_t> tags;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  // Only a large block can need several pickle frames, because of its tokens or its texts.
  RandomBlock Block(bool large) {
    RandomBlock block;
    block.parent.size = Below(2) == 0 ? 32 : 16;
    for (size_t i = 0; i < block.parent.size; ++i) block.parent.data[i] = Byte();
    const size_t most_tokens = large && Below(2) == 0 ? 30000 : 20;
    const size_t tokens = Below(4) == 0 ? Below(5) : Below(most_tokens);
    for (size_t i = 0; i < tokens; ++i) block.tokens.push_back(Int());
    const size_t keys = Below(3) == 0 ? 0 : Below(7);
    for (size_t i = 0; i < keys; ++i) {
      block.keys.push_back(Key(large, 0));
      block.tags.push_back(static_cast<uint32_t>(Below(3)));
    }
    return block;
  }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }
  uint8_t Byte() { return static_cast<uint8_t>(random_()); }

  // All widths have equal probability, and values at the edges of widths are frequent.
  int64_t Int() {
    const uint64_t bits = random_() >> Below(64);
    const uint64_t edge = (uint64_t{1} << Below(64)) + Below(3) - 1;
    const uint64_t magnitude = Below(3) == 0 ? edge : bits;
    return static_cast<int64_t>(Below(4) == 0 ? ~magnitude : magnitude);
  }
  // Few distinct texts, so that equal texts occur in one block. The lengths of long texts lie
  // around the limits of the length fields.
  std::string Text(bool large) {
    static const char* const kShort[] = {"", "l", "t", "\u00fc", "\u0100", "img-B", "\u79df\u6237"};
    if (Below(3) != 0) return kShort[Below(std::size(kShort))];
    const size_t lengths[] = {23, 24, 255, 256, 300, 65535, 65536, 70000};
    return std::string(lengths[Below(large ? std::size(lengths) : 5)], 'x');
  }
  double Float() {
    const double value = static_cast<double>(Int()) / static_cast<double>(uint64_t{1} << Below(40));
    // The C encoder of cbor2 5.4 does not use the half-precision form for values in this range.
    const bool is_excluded = std::fabs(value) >= 32768 && std::fabs(value) < 65536;
    return is_excluded ? 0 : value;
  }
  ExtraKey Key(bool large, int depth) {
    switch (Below(depth == 0 ? 10 : 7)) {
      case 0:
        return {};
      case 1:
        return {Below(2) == 0};
      case 2:
        return ExtraKey::Int(Int());
      case 3:
        return {random_() | uint64_t{1} << 63};
      case 4:
        return {Float()};
      case 5:
        return ExtraKey::Binary(Text(large));
      case 6:
        return ExtraKey::Text(Text(large));
      case 7:
        return List(large, depth);
      default:
        return ExtraKey::Item(Text(large), Int());
    }
  }
  ExtraKey List(bool large, int depth) {
    ExtraKeyList list;
    for (size_t i = Below(6); i > 0; --i) list.items.push_back(Key(large, depth + 1));
    return {std::move(list)};
  }

  std::mt19937_64 random_;
};

// Writes the JSON that reference.py reads.
void WriteKey(std::ostream& out, const ExtraKey& key, uint32_t tag);

struct KeyToJson {
  std::ostream& out;
  uint32_t tag;

  void operator()(std::monostate) { out << R"({"none":true})"; }
  void operator()(bool value) { out << R"({"bool":)" << (value ? "true}" : "false}"); }
  void operator()(int64_t value) { out << R"({"int":)" << value << '}'; }
  void operator()(uint64_t value) { out << R"({"int":)" << value << '}'; }
  void operator()(double value) {
    char hex[64];
    std::snprintf(hex, sizeof(hex), "%a", value);
    out << R"({"float":")" << hex << R"("})";
  }
  void operator()(const std::string& text) {
    out << R"({"text":")" << ToHex(text) << R"(","tag":)" << tag << '}';
  }
  void operator()(const Bytes& bytes) { out << R"({"bytes":")" << ToHex(bytes.data) << R"("})"; }
  void operator()(const ExtraKeyList& list) {
    out << R"({"list":[)";
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out << ',';
      WriteKey(out, list.items[i], i == 0 ? tag : 0);
    }
    out << "]}";
  }
};

void WriteKey(std::ostream& out, const ExtraKey& key, uint32_t tag) {
  std::visit(KeyToJson{out, tag}, key.value);
}

void WriteBlock(std::ostream& out, const RandomBlock& block) {
  out << R"({"parent":")" << ToHex(block.parent) << R"(","tokens":[)";
  for (size_t i = 0; i < block.tokens.size(); ++i) out << (i > 0 ? "," : "") << block.tokens[i];
  out << R"(],"keys":)" << (block.keys.empty() ? "null" : "[");
  for (size_t i = 0; i < block.keys.size(); ++i) {
    if (i > 0) out << ',';
    WriteKey(out, block.keys[i], block.tags[i]);
  }
  out << (block.keys.empty() ? "}\n" : "]}\n");
}

// One output line of reference.py: preimage, SHA-256 and XXH3 of each serialisation.
struct Reference {
  std::string pickle, pickle_sha256, pickle_xxh3, cbor, cbor_sha256, cbor_xxh3;
};

// Shows the first difference of two preimages. A whole preimage may have several megabytes.
std::string FirstDifference(const std::string& ours, const std::string& reference) {
  const auto [a, b] = std::mismatch(ours.begin(), ours.end(), reference.begin(), reference.end());
  const auto position = static_cast<size_t>(a - ours.begin());
  const size_t from = position < 40 ? 0 : position - 40;
  return "at digit " + std::to_string(position) + ": ours ..." + ours.substr(from, 80) +
         ", Python's ..." + reference.substr(from, 80);
}

class PythonDifferential : public ::testing::Test {
 protected:
  static uint64_t Seed() {
    return static_cast<uint64_t>(testing::Setting("KVCAST_TEST_SEED", 20260817));
  }

  void SetUp() override {
    const char* python = std::getenv("KVCAST_PYTHON");
    const std::string interpreter = python ? python : "/usr/bin/python3";
    if (access(interpreter.c_str(), X_OK) != 0) GTEST_SKIP() << "no interpreter " << interpreter;
    Generator generator(Seed());
    for (size_t i = 0; i < kSmallBlocks + kLargeBlocks; ++i) {
      blocks_.push_back(generator.Block(i >= kSmallBlocks));
    }
    RunReference(interpreter);
  }

  void RunReference(const std::string& interpreter) {
    const std::string base = ::testing::TempDir() + "kvcast_hash_" + std::to_string(getpid());
    const std::string input = base + ".in";
    const std::string output = base + ".out";
    {
      std::ofstream file(input);
      for (const RandomBlock& block : blocks_) WriteBlock(file, block);
    }
    const std::string command = interpreter + " " +
                                (SourceDir() / "tests/hash/reference.py").string() + " <" + input +
                                " >" + output;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    std::ifstream file(output);
    for (Reference r; file >> r.pickle >> r.pickle_sha256 >> r.pickle_xxh3 >> r.cbor >>
                      r.cbor_sha256 >> r.cbor_xxh3;) {
      references_.push_back(r);
    }
    ASSERT_EQ(references_.size(), blocks_.size());
    std::remove(input.c_str());
    std::remove(output.c_str());
  }

  // Compares preimage and digest of each block under `algorithm` with two columns of the reference.
  void Compare(HashAlgorithm algorithm, std::string Reference::*preimage,
               std::string Reference::*digest) {
    if (references_[0].*preimage == "-") GTEST_SKIP() << "Python package cbor2 is not installed";
    if (references_[0].*digest == "-") GTEST_SKIP() << "Python package xxhash is not installed";
    BlockHasher hasher = MakeHasher(algorithm);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const RandomBlock& block = blocks_[i];
      SCOPED_TRACE("KVCAST_TEST_SEED=" + std::to_string(Seed()) + " block " + std::to_string(i));
      const std::string ours =
          ToHex(hasher.Preimage(&block.parent, block.tokens, block.keys, block.tags));
      ASSERT_TRUE(ours == references_[i].*preimage)
          << FirstDifference(ours, references_[i].*preimage);
      ASSERT_EQ(ToHex(hasher.HashBlock(&block.parent, block.tokens, block.keys, block.tags)),
                references_[i].*digest);
    }
  }

  std::vector<RandomBlock> blocks_;
  std::vector<Reference> references_;
};

TEST_F(PythonDifferential, PickleAndSha256) {
  Compare(HashAlgorithm::kSha256, &Reference::pickle, &Reference::pickle_sha256);
}

TEST_F(PythonDifferential, CborAndSha256) {
  Compare(HashAlgorithm::kSha256Cbor, &Reference::cbor, &Reference::cbor_sha256);
}

TEST_F(PythonDifferential, PickleAndXxh3) {
  Compare(HashAlgorithm::kXxhash, &Reference::pickle, &Reference::pickle_xxh3);
}

TEST_F(PythonDifferential, CborAndXxh3) {
  Compare(HashAlgorithm::kXxhashCbor, &Reference::cbor, &Reference::cbor_xxh3);
}

}  // namespace
}  // namespace kvcast::testing
