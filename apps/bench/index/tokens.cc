// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "apps/bench/index/commands.h"
#include "apps/bench/index/corpus_source.h"
#include "apps/bench/index/process_memory.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/samples.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/content_key.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {
namespace {

constexpr char kTokensMethod[] =
    "The blocks of a corpus (see bench/CORPUS.md) get tokens that are derived from their local\n"
    "hashes. index: the time of Apply in nanoseconds per stored or removed block, and the\n"
    "memory at the end in bytes per pair (worker, block). named: the store events have tokens.\n"
    "unnamed: they have none. The memory is the larger of two figures: bytes of the allocator,\n"
    "and resident bytes. In the other cases, the engines hash by xxhash, by sha256, or by three\n"
    "schemes in turn. The time runs from the tokens of a prompt to the answer for all workers.\n"
    "content: the content keys, and Match by content. hash: the hash chain of each scheme, and\n"
    "Match by hash. content and hash alternate, and all answers are compared.";

constexpr TokenId kVocabulary = 151'936;
constexpr size_t kChunk = 256;  // number of batches that are made before Apply is timed
constexpr int64_t kRun = 16;    // number of consecutive queries by one method

void AppendTokens(uint64_t local, uint32_t count, std::vector<TokenId>& tokens) {
  uint64_t state = local;
  for (uint32_t i = 0; i < count; ++i) {
    // SplitMix64.
    uint64_t mixed = state += 0x9E3779B97F4A7C15;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    tokens.push_back(static_cast<TokenId>((mixed ^ mixed >> 31) % kVocabulary));
  }
}

std::vector<TokenId> TokensOf(const CorpusRecord& record, uint32_t block_tokens) {
  std::vector<TokenId> tokens;
  tokens.reserve(record.blocks.size() * block_tokens);
  for (const CorpusBlock& block : record.blocks) AppendTokens(block.local, block_tokens, tokens);
  return tokens;
}

// Computes the block hashes of the engines that use one hash scheme.
class EngineHashes {
 public:
  static Result<EngineHashes> Of(HashAlgorithm algorithm) {
    auto hasher = BlockHasher::FromSeed(algorithm, kDefaultHashSeed);
    if (!hasher.ok()) return hasher.status();
    return EngineHashes(std::move(hasher).value());
  }

  // Returns the hash of a block that was added before.
  BlockHash Of(uint64_t sequence) const { return EventHash(digests_.at(sequence)); }
  // Computes the hashes of a store's blocks, and appends them to `hashes`. `tokens`: all tokens of
  // the store.
  void Add(const CorpusRecord& record, std::span<const TokenId> tokens, uint32_t block_tokens,
           std::vector<BlockHash>& hashes) {
    Digest digest;
    if (record.parent != 0) digest = digests_.at(record.parent);
    const Digest* parent = record.parent == 0 ? nullptr : &digest;
    for (size_t i = 0; i < record.blocks.size(); ++i) {
      const auto [it, inserted] = digests_.try_emplace(record.blocks[i].sequence);
      if (inserted) {
        it->second = hasher_.HashBlock(parent, tokens.subspan(i * block_tokens, block_tokens), {});
      }
      digest = it->second;
      parent = &digest;
      hashes.push_back(EventHash(digest));
    }
  }
  void ChainOf(std::span<const TokenId> tokens, uint32_t block_tokens,
               std::vector<BlockHash>& chain) {
    digest_chain_.clear();
    hasher_.ExtendChain(tokens, block_tokens, {}, digest_chain_);
    chain.clear();
    for (const Digest& digest : digest_chain_) chain.push_back(EventHash(digest));
  }

 private:
  explicit EngineHashes(BlockHasher hasher) : hasher_(std::move(hasher)) {}
  static BlockHash EventHash(const Digest& digest) {
    return BlockHash::FromUnsigned(digest.low64());
  }

  BlockHasher hasher_;
  absl::flat_hash_map<uint64_t, Digest> digests_;  // by sequence hash
  std::vector<Digest> digest_chain_;
};

Status AddWorkers(const Corpus& corpus, PrefixIndex& index) {
  WorkerConfig config{.name = "worker"};
  config.groups.push_back({.block_size = corpus.block_tokens});
  for (uint32_t worker = 0; worker < corpus.workers; ++worker) {
    if (Status status = index.AddWorker(WorkerId(worker), config); !status.ok()) return status;
  }
  return {};
}

Event StoreOf(std::vector<BlockHash> hashes, std::optional<BlockHash> parent,
              std::optional<std::vector<TokenId>> tokens, uint32_t block_tokens) {
  BlockStored stored;
  stored.block_hashes = std::move(hashes);
  stored.parent_block_hash = std::move(parent);
  stored.token_ids = std::move(tokens);
  stored.block_size = block_tokens;
  stored.medium = kMediumGpu;
  stored.group_idx = 0;
  return stored;
}

Event RemoveOf(std::vector<BlockHash> hashes) {
  return BlockRemoved{.block_hashes = std::move(hashes), .medium = kMediumGpu, .group_idx = 0};
}

// Measures Apply and the memory with the events of the corpus. The sequence hashes serve as engine
// hashes. `names`: the store events have tokens.
Status RunIndex(const Corpus& corpus, bool names, Report& report) {
  PrefixIndex index;
  if (Status status = AddWorkers(corpus, index); !status.ok()) return status;
  const ProcessMemory before = ReadProcessMemory(true);
  struct PendingBatch {
    WorkerId worker;
    EventBatch batch;
  };
  std::vector<PendingBatch> chunk;
  double nanoseconds = 0;
  uint64_t ops = 0;
  const auto apply = [&] {
    const auto start = Clock::now();
    for (const PendingBatch& pending : chunk) index.Apply(pending.worker, pending.batch);
    nanoseconds += NanosecondsSince(start);
    chunk.clear();
  };
  for (const CorpusRecord& record : corpus.records) {
    if (record.op == CorpusOp::kQuery) continue;
    std::vector<BlockHash> hashes;
    for (const CorpusBlock& block : record.blocks) hashes.emplace_back(block.sequence);
    ops += hashes.size();
    PendingBatch& pending =
        chunk.emplace_back(PendingBatch{.worker = WorkerId(record.worker), .batch = {}});
    if (record.op == CorpusOp::kRemove) {
      pending.batch.events.push_back(RemoveOf(std::move(hashes)));
    } else {
      std::optional<BlockHash> parent;
      if (record.parent != 0) parent = BlockHash(record.parent);
      std::optional<std::vector<TokenId>> tokens;
      if (names) tokens = TokensOf(record, corpus.block_tokens);
      pending.batch.events.push_back(
          StoreOf(std::move(hashes), parent, std::move(tokens), corpus.block_tokens));
    }
    if (chunk.size() == kChunk) apply();
  }
  apply();
  std::vector<PendingBatch>().swap(chunk);
  const ProcessMemory now = ReadProcessMemory(true);
  uint64_t pairs = 0;
  for (uint32_t worker = 0; worker < corpus.workers; ++worker) {
    pairs += index.counters(WorkerId(worker)).residencies;
  }
  const std::string name = names ? "tokens.index.named" : "tokens.index.unnamed";
  const auto bytes = static_cast<double>(
      std::max(now.allocated - before.allocated, now.resident - before.resident));
  report.Figure(name + ".apply", nanoseconds / static_cast<double>(ops), "ns");
  report.Figure(name + ".memory", bytes / static_cast<double>(pairs), "bytes");
  report.Figure(name + ".allocated",
                static_cast<double>(now.allocated - before.allocated) / static_cast<double>(pairs),
                "bytes");
  return {};
}

// A fleet whose engines use several hash schemes, assigned to the workers in turn.
class TokensCase {
 public:
  TokensCase(const Corpus& corpus, const TokensBenchOptions& options)
      : corpus_(corpus), options_(options) {}

  Status Run(const std::string& name, std::span<const HashAlgorithm> algorithms, Report& report) {
    if (Status status = AddWorkers(corpus_, index_); !status.ok()) return status;
    for (const HashAlgorithm algorithm : algorithms) {
      auto scheme = EngineHashes::Of(algorithm);
      if (!scheme.ok()) return scheme.status();
      schemes_.push_back(std::move(scheme).value());
    }
    workers_.resize(schemes_.size());
    for (uint32_t worker = 0; worker < corpus_.workers; ++worker) {
      workers_[worker % schemes_.size()].emplace_back(worker);
    }
    const size_t segment = corpus_.records.size() / static_cast<size_t>(options_.points) + 1;
    std::vector<const CorpusRecord*> queries;
    for (size_t i = 0; i < corpus_.records.size(); ++i) {
      const CorpusRecord& record = corpus_.records[i];
      if (record.op != CorpusOp::kQuery) {
        Apply(record);
      } else if (std::ssize(queries) < options_.queries && !record.blocks.empty()) {
        queries.push_back(&record);
      }
      if ((i + 1) % segment == 0 || i + 1 == corpus_.records.size()) {
        Ask(queries);
        queries.clear();
      }
    }
    const auto figures = [&](const std::string& way, const Samples& samples) {
      report.Figure(name + "." + way + "_p50", samples.median() * 1e-3, "us");
      report.Figure(name + "." + way + "_p99", samples.Quantile(0.99) * 1e-3, "us");
    };
    figures("content", by_content_);
    figures("content_match", content_match_);
    figures("hash", by_hash_);
    figures("hash_match", hash_match_);
    report.Figure(name + ".ratio", by_hash_.median() / by_content_.median(), "times faster");
    report.Target(name + ".wrong_answers", static_cast<double>(wrong_), "", 0);
    return {};
  }

 private:
  void Apply(const CorpusRecord& record) {
    EngineHashes& scheme = schemes_[record.worker % schemes_.size()];
    std::vector<BlockHash> hashes;
    EventBatch batch;
    if (record.op == CorpusOp::kRemove) {
      for (const CorpusBlock& block : record.blocks) hashes.push_back(scheme.Of(block.sequence));
      batch.events.push_back(RemoveOf(std::move(hashes)));
    } else {
      std::vector<TokenId> tokens = TokensOf(record, corpus_.block_tokens);
      scheme.Add(record, tokens, corpus_.block_tokens, hashes);
      std::optional<BlockHash> parent;
      if (record.parent != 0) parent = scheme.Of(record.parent);
      batch.events.push_back(
          StoreOf(std::move(hashes), parent, std::move(tokens), corpus_.block_tokens));
    }
    index_.Apply(WorkerId(record.worker), batch);
  }

  void Ask(std::span<const CorpusRecord* const> queries) {
    for (size_t begin = 0; begin < queries.size(); begin += kRun) {
      const auto run = queries.subspan(begin, std::min<size_t>(kRun, queries.size() - begin));
      content_answers_.clear();
      hash_answers_.clear();
      const bool content_first = begin / kRun % 2 == 0;
      for (const CorpusRecord* query : run) content_first ? ByContent(*query) : ByHash(*query);
      for (const CorpusRecord* query : run) content_first ? ByHash(*query) : ByContent(*query);
      wrong_ += content_answers_ != hash_answers_;
    }
  }

  void ByContent(const CorpusRecord& query) {
    const std::vector<TokenId> tokens = TokensOf(query, corpus_.block_tokens);
    const auto start = Clock::now();
    const ContentKeys& content = index_.keys();
    keys_.resize(query.blocks.size());
    content.ExtendBy(content.Root({}), tokens, corpus_.block_tokens, keys_);
    const auto match = Clock::now();
    const std::vector<WorkerMatch> answer = index_.Match({.hash_block_size = corpus_.block_tokens,
                                                          .prompt_tokens = std::ssize(tokens) + 1,
                                                          .contents = keys_,
                                                          .hashes = {}});
    content_match_.Add(NanosecondsSince(match));
    by_content_.Add(NanosecondsSince(start));
    Keep(answer, content_answers_);
  }

  void ByHash(const CorpusRecord& query) {
    const std::vector<TokenId> tokens = TokensOf(query, corpus_.block_tokens);
    double matching = 0;
    std::vector<WorkerMatch> all;
    const auto start = Clock::now();
    for (size_t i = 0; i < schemes_.size(); ++i) {
      schemes_[i].ChainOf(tokens, corpus_.block_tokens, chain_);
      const auto match = Clock::now();
      std::vector<WorkerMatch> answer =
          index_.Match(chain_, corpus_.block_tokens, std::ssize(tokens) + 1,
                       schemes_.size() == 1 ? std::span<const WorkerId>() : workers_[i]);
      matching += NanosecondsSince(match);
      if (all.empty()) {
        all = std::move(answer);
      } else {
        std::move(answer.begin(), answer.end(), std::back_inserter(all));
      }
    }
    hash_match_.Add(matching);
    by_hash_.Add(NanosecondsSince(start));
    Keep(all, hash_answers_);
  }

  // Appends the GPU tokens of each worker, ordered by worker number; -1: not in the answer.
  void Keep(const std::vector<WorkerMatch>& answer, std::vector<int64_t>& answers) const {
    const size_t begin = answers.size();
    answers.resize(begin + corpus_.workers, -1);
    for (const WorkerMatch& match : answer) {
      answers[begin + match.worker.value] = match.gpu_tokens;
    }
  }

  const Corpus& corpus_;
  const TokensBenchOptions& options_;
  PrefixIndex index_;
  std::vector<EngineHashes> schemes_;
  std::vector<std::vector<WorkerId>> workers_;  // by scheme
  std::vector<ContentKey> keys_;
  std::vector<BlockHash> chain_;
  Samples by_content_;
  Samples content_match_;
  Samples by_hash_;
  Samples hash_match_;
  std::vector<int64_t> content_answers_;
  std::vector<int64_t> hash_answers_;
  int64_t wrong_ = 0;
};

}  // namespace

int RunTokensBench(const TokensBenchOptions& options) {
  auto corpus = LoadCorpus(options.corpus);
  if (!corpus.ok()) return tools::Fail(corpus.status());
  Report report("tokens", kTokensMethod, options.json);
  report.Note("corpus sha256 " + CorpusHash(EncodeCorpus(*corpus)));
  report.Note("content keys by " + std::string(ContentKeys::Code()) + " code");
  if (options.tokens > 0) corpus->block_tokens = static_cast<uint32_t>(options.tokens);
  for (const bool names : {false, true}) {
    if (Status status = RunIndex(*corpus, names, report); !status.ok()) return tools::Fail(status);
  }
  const std::pair<const char*, std::vector<HashAlgorithm>> cases[] = {
      {"tokens.xxhash", {HashAlgorithm::kXxhash}},
      {"tokens.sha256", {HashAlgorithm::kSha256}},
      {"tokens.three",
       {HashAlgorithm::kXxhash, HashAlgorithm::kSha256, HashAlgorithm::kXxhashCbor}}};
  for (const auto& [name, algorithms] : cases) {
    const auto fleet = std::make_unique<TokensCase>(*corpus, options);
    if (Status status = fleet->Run(name, algorithms, report); !status.ok()) {
      return tools::Fail(status);
    }
  }
  return report.Finish();
}

}  // namespace kvcast::bench
