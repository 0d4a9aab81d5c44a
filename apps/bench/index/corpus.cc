// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/corpus.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvcast::bench {
namespace {

constexpr char kMagic[8] = {'K', 'V', 'C', 'O', 'R', 'P', 'U', 'S'};
constexpr size_t kHeaderBytes = 32;
constexpr size_t kRecordBytes = 32;
constexpr size_t kBlockBytes = 16;
constexpr size_t kHashBytes = SHA256_DIGEST_LENGTH;

template <typename T>
void Put(std::vector<uint8_t>& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename T>
T Get(const uint8_t* from) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{from[i]} << (8 * i);
  return static_cast<T>(value);
}

Status Bad(const std::string& problem) {
  return {StatusCode::kMalformed, "invalid corpus file: " + problem};
}

class CorpusReader {
 public:
  explicit CorpusReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  Result<Corpus> Read() {
    if (Status status = ReadHeader(); !status.ok()) return status;
    for (uint64_t i = 0; i < records_; ++i) {
      if (const char* problem = ReadRecord()) {
        return Bad(std::string(problem) + " (record " + std::to_string(i) + ", byte " +
                   std::to_string(offset_) + ")");
      }
    }
    if (offset_ != end_) return Bad("extra bytes after the last record");
    return std::move(corpus_);
  }

 private:
  Status ReadHeader() {
    if (bytes_.size() < kHeaderBytes + kHashBytes) return Bad("too short");
    if (std::memcmp(bytes_.data(), kMagic, sizeof(kMagic)) != 0) {
      return Bad("it does not begin with KVCORPUS");
    }
    const auto version = Get<uint32_t>(&bytes_[8]);
    if (version != kCorpusVersion)
      return Bad("version " + std::to_string(version) + " is not supported (supported: 1)");
    end_ = bytes_.size() - kHashBytes;
    uint8_t digest[kHashBytes];
    SHA256(bytes_.data(), end_, digest);
    if (std::memcmp(digest, &bytes_[end_], kHashBytes) != 0) {
      return Bad("the content hash at the end of the file does not match (damaged or truncated)");
    }
    corpus_.workers = Get<uint32_t>(&bytes_[12]);
    corpus_.block_tokens = Get<uint32_t>(&bytes_[16]);
    records_ = Get<uint64_t>(&bytes_[24]);
    if (corpus_.workers == 0 || corpus_.workers > kMaxCorpusWorkers) {
      return Bad("number of workers out of range");
    }
    if (corpus_.block_tokens == 0) return Bad("blocks of 0 tokens");
    offset_ = kHeaderBytes;
    return {};
  }

  // Returns the error; nullptr: no error.
  const char* ReadRecord() {
    if (end_ - offset_ < kRecordBytes) return "truncated";
    const uint8_t* const head = &bytes_[offset_];
    CorpusRecord record{.due = Get<uint64_t>(head),
                        .worker = Get<uint32_t>(head + 8),
                        .op = static_cast<CorpusOp>(head[12]),
                        .parent = Get<uint64_t>(head + 16),
                        .blocks = {}};
    const auto blocks = Get<uint64_t>(head + 24);
    if (record.due > kCorpusWindow) return "due after the end of the window";
    if (!corpus_.records.empty() && record.due < corpus_.records.back().due) {
      return "due before the previous record";
    }
    if (record.worker >= corpus_.workers) return "no such worker";
    if (head[12] < 1 || head[12] > 3) return "unknown operation";
    if (blocks > (end_ - offset_ - kRecordBytes) / kBlockBytes)
      return "the file is too short for the number of blocks";
    if (record.op != CorpusOp::kStore && record.parent != 0)
      return "a query or a remove has a parent";
    offset_ += kRecordBytes;
    record.blocks.reserve(blocks);
    for (uint64_t i = 0; i < blocks; ++i, offset_ += kBlockBytes) {
      record.blocks.push_back(
          {Get<uint64_t>(&bytes_[offset_]), Get<uint64_t>(&bytes_[offset_ + 8])});
    }
    corpus_.records.push_back(std::move(record));
    return nullptr;
  }

  const std::span<const uint8_t> bytes_;
  Corpus corpus_;
  uint64_t records_ = 0;
  size_t offset_ = 0;
  size_t end_ = 0;
};

}  // namespace

uint64_t Corpus::record_blocks() const {
  uint64_t blocks = 0;
  for (const CorpusRecord& record : records) blocks += record.blocks.size();
  return blocks;
}

std::vector<uint8_t> EncodeCorpus(const Corpus& corpus) {
  std::vector<uint8_t> out;
  out.reserve(kHeaderBytes + kHashBytes + corpus.records.size() * kRecordBytes +
              corpus.record_blocks() * kBlockBytes);
  out.insert(out.end(), std::begin(kMagic), std::end(kMagic));
  Put(out, kCorpusVersion);
  Put(out, corpus.workers);
  Put(out, corpus.block_tokens);
  Put(out, uint32_t{0});
  Put(out, uint64_t{corpus.records.size()});
  for (const CorpusRecord& record : corpus.records) {
    Put(out, record.due);
    Put(out, record.worker);
    Put(out, static_cast<uint32_t>(record.op));
    Put(out, record.parent);
    Put(out, uint64_t{record.blocks.size()});
    for (const CorpusBlock& block : record.blocks) {
      Put(out, block.local);
      Put(out, block.sequence);
    }
  }
  uint8_t digest[kHashBytes];
  SHA256(out.data(), out.size(), digest);
  out.insert(out.end(), digest, digest + kHashBytes);
  return out;
}

Result<Corpus> DecodeCorpus(std::span<const uint8_t> bytes) { return CorpusReader(bytes).Read(); }

std::string CorpusHash(std::span<const uint8_t> encoded) {
  std::string text;
  for (const uint8_t byte : encoded.last(kHashBytes)) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace kvcast::bench
