// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <utility>

#include "apps/conformance/conformance.h"
#include "apps/conformance/hash/hash_record.h"
#include "apps/support/file.h"
#include "apps/support/recording_paths.h"
#include "src/hash/extra_keys.h"
#include "src/hash/hash_algorithm.h"
#include "src/hash/sha256.h"
#include "src/hash/xxh3.h"

namespace kvcast::tools {
namespace {

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string_view AsText(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

// Counts the checks of one file and keeps the line of the first difference.
class FileChecks {
 public:
  FileChecks(std::string path, ConformanceReport& report)
      : path_(std::move(path)), report_(report) {}

  void set_record(std::string name) { record_ = std::move(name); }

  void Check(bool equal, const std::string& name, std::string_view detail = {}) {
    ++report_.compared;
    if (equal) {
      ++report_.equal;
      return;
    }
    if (std::exchange(differs_, true)) return;
    report_.first_differences.push_back(path_ + ": " + record_ + ": " + name + std::string(detail));
  }
  void CheckBytes(std::string_view ours, std::string_view recorded, const std::string& name) {
    if (ours == recorded) return Check(true, name);
    Check(false, name, " is " + Hex(ours) + ", recorded " + Hex(recorded));
  }
  // Checks that the recorded list has one entry per block.
  bool CheckCount(size_t ours, size_t recorded, const std::string& name) {
    if (ours == recorded) return true;
    Check(false, name,
          ": " + std::to_string(ours) + " entries, recorded " + std::to_string(recorded));
    return false;
  }
  void Unsupported() { ++report_.unsupported; }

 private:
  const std::string path_;
  ConformanceReport& report_;
  std::string record_;
  bool differs_ = false;
};

std::string Block(size_t index, std::string_view name) {
  return "block " + std::to_string(index) + ": " + std::string(name);
}

// True: the engine may have drawn NONE_HASH at random. NONE_HASH then cannot be computed, and is
// taken from the record.
bool MayBeDrawn(const HashRecord& record) {
  return !record.seed || record.seed->empty() || *record.seed == "random" ||
         *record.seed == "unset";
}

void CheckSeedPreimage(const HashRecord& record, HashAlgorithm algorithm, std::string_view seed,
                       FileChecks& checks) {
  if (!record.none_hash_preimage) return;
  internal::ByteBuffer preimage;
  internal::WriteSeedPreimage(internal::SerialisationOf(algorithm), seed, preimage);
  checks.CheckBytes(preimage.view(), *record.none_hash_preimage, "NONE_HASH preimage");
}

// The random text is unknown, but the digest of the recorded preimage must be NONE_HASH.
void CheckDrawnPreimage(const HashRecord& record, HashAlgorithm algorithm, FileChecks& checks) {
  if (!record.none_hash_preimage) return;
  const auto bytes = AsBytes(*record.none_hash_preimage);
  const Digest digest =
      internal::UsesSha256(algorithm) ? internal::Sha256Once(bytes) : internal::Xxh3(bytes);
  checks.CheckBytes(AsText(digest.bytes()), record.none_hash, "digest of NONE_HASH preimage");
}

// Returns the hasher of a record. Compares the NONE_HASH of the seed with the recorded NONE_HASH.
// If they differ and the engine may have drawn NONE_HASH at random, the hasher uses the recorded
// NONE_HASH.
Result<BlockHasher> MakeHasher(const HashRecord& record, HashAlgorithm algorithm,
                               FileChecks& checks) {
  const std::string seed = record.seed.value_or(std::string(kDefaultHashSeed));
  Result<BlockHasher> seeded = BlockHasher::FromSeed(algorithm, seed);
  if (!seeded.ok()) return seeded;
  const std::string_view none_hash = AsText(seeded->none_hash().bytes());
  if (none_hash != record.none_hash && MayBeDrawn(record)) {
    CheckDrawnPreimage(record, algorithm, checks);
    return BlockHasher::FromNoneHash(algorithm, AsBytes(record.none_hash));
  }
  checks.CheckBytes(none_hash, record.none_hash, "NONE_HASH");
  CheckSeedPreimage(record, algorithm, seed, checks);
  return seeded;
}

void CheckDigests(const HashRecord& record, std::span<const Digest> chain, FileChecks& checks) {
  if (checks.CheckCount(chain.size(), record.block_hashes.size(), "block_hashes")) {
    for (size_t i = 0; i < chain.size(); ++i) {
      checks.CheckBytes(AsText(chain[i].bytes()), record.block_hashes[i], Block(i, "digest"));
    }
  }
  if (checks.CheckCount(chain.size(), record.int64.size(), "int64")) {
    for (size_t i = 0; i < chain.size(); ++i) {
      const BlockHash hash = ToEventHash(chain[i], EventHashForm::kInt64);
      checks.Check(hash.integer() == record.int64[i], Block(i, "int64"),
                   " is " + std::to_string(hash.integer()));
    }
  }
}

void CheckExtraKeys(const HashRecord& record, const ChainForm& form, size_t blocks,
                    const std::optional<std::vector<ExtraKeys>>& recorded, const std::string& field,
                    const std::string& name, FileChecks& checks) {
  if (!recorded || !checks.CheckCount(blocks, recorded->size(), field)) return;
  for (size_t i = 0; i < blocks; ++i) {
    const int64_t begin = static_cast<int64_t>(i) * record.block_size;
    const ExtraKeys keys = ExtraKeysFor(record.inputs, begin, begin + record.block_size, form);
    checks.Check(keys == (*recorded)[i], Block(i, name), " differ");
  }
}

std::span<const TokenId> TokensAfter(const HashRecord& record, size_t block) {
  const size_t end = (block + 1) * static_cast<size_t>(record.block_size);
  return std::span(record.tokens).subspan(end, static_cast<size_t>(record.form.lookahead));
}

void CheckLookahead(const HashRecord& record, size_t blocks, FileChecks& checks) {
  const auto& recorded = record.lookahead_token_ids;
  if (!recorded || !checks.CheckCount(blocks, recorded->size(), "lookahead_token_ids")) return;
  for (size_t i = 0; i < blocks; ++i) {
    checks.Check(std::ranges::equal(TokensAfter(record, i), (*recorded)[i]),
                 Block(i, "lookahead tokens"), " differ");
  }
}

void CheckPreimages(const HashRecord& record, std::span<const Digest> chain, BlockHasher& hasher,
                    FileChecks& checks) {
  if (!record.preimages) return;
  if (!checks.CheckCount(chain.size(), record.preimages->size(), "preimages_hex")) return;
  const auto hash_block_size = static_cast<size_t>(record.block_size);
  size_t cursor = 0;
  internal::BlockKeys keys;
  for (size_t i = 0; i < chain.size(); ++i) {
    const auto begin = static_cast<int64_t>(i * hash_block_size);
    const ChainForm& form = record.form;
    internal::CollectBlockKeys(record.inputs, {begin, begin + record.block_size, form.lookahead},
                               form.extra_keys, cursor, keys);
    const std::string preimage =
        hasher.Preimage(i == 0 ? nullptr : &chain[i - 1],
                        std::span(record.tokens).subspan(i * hash_block_size, hash_block_size),
                        keys.keys, keys.object_tags, {form.extra_keys, TokensAfter(record, i)});
    checks.CheckBytes(preimage, (*record.preimages)[i], Block(i, "preimage"));
  }
}

Status CheckRecord(const HashRecord& record, FileChecks& checks) {
  checks.set_record(record.name);
  const std::optional<HashAlgorithm> algorithm = ParseHashAlgorithm(record.algorithm);
  if (!algorithm) {
    checks.Unsupported();
    return Status();
  }
  Result<BlockHasher> hasher = MakeHasher(record, *algorithm, checks);
  if (!hasher.ok()) return hasher.status();
  std::vector<Digest> chain;
  hasher->ExtendChain(record.tokens, record.block_size, record.inputs, chain, record.form);
  CheckDigests(record, chain, checks);
  CheckExtraKeys(record, record.form, chain.size(), record.extra_keys, "extra_keys", "extra keys",
                 checks);
  CheckExtraKeys(record, {.lookahead = record.form.lookahead}, chain.size(),
                 record.event_extra_keys, "event_extra_keys", "event's extra keys", checks);
  CheckLookahead(record, chain.size(), checks);
  CheckPreimages(record, chain, *hasher, checks);
  return Status();
}

Status CheckFile(const std::string& path, ConformanceReport& report) {
  const Result<std::string> content = ReadFile(path);
  if (!content.ok()) return content.status();
  FileChecks checks(path, report);
  const std::vector<std::string_view> lines = SplitLines(*content);
  size_t records = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const auto place = [&] { return path + ":" + std::to_string(i + 1) + ": "; };
    const Result<HashRecord> record = ParseHashRecord(lines[i]);
    if (!record.ok()) return Status(record.status().code(), place() + record.status().message());
    const Status status = CheckRecord(*record, checks);
    if (!status.ok()) return Status(status.code(), place() + status.message());
    ++records;
  }
  if (records == 0) return Status(StatusCode::kMalformed, path + ": no block-hash record");
  ++report.files;
  return Status();
}

bool IsHashFile(const std::string& path) {
  if (!HasExtension(path, ".jsonl")) return false;
  if (std::filesystem::path(path).filename().string().starts_with("block_hashes")) return true;
  return LooksLikeHashRecord(FirstLine(path));
}

}  // namespace

Status RunHashConformance(const std::vector<std::string>& paths, ConformanceReport& report) {
  const auto files = RecordingPaths(paths, IsHashFile, "block-hash file");
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    if (Status status = CheckFile(file, report); !status.ok()) return status;
  }
  return Status();
}

}  // namespace kvcast::tools
