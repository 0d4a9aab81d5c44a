// If the input of a source doubles, the time and the memory to apply the input grow at most by a
// factor of three, for any input. The input is a mix of kinds of events. The index is large before
// the measurement. Most cases are measured with all events in one batch, and with one event in each
// batch.
//
// The cost is the CPU time of the thread. A case is large enough to take kEnoughSeconds, or has
// kMostEvents events. A case that is too slow is repeated, and fails only if the least cost of
// kRepeats repetitions is too high.
// KVCAST_DOUBLING_ENTRIES sets the number of blocks in the index, for example 1000000.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/core/tier.h"
#include "router/service/ingest/worker_ingest.h"
#include "src/base/clock.h"
#include "src/wire/writer.h"
#include "tests/support/content_events.h"
#include "tests/support/setting.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Full;
using kvcast::testing::Hash;
using kvcast::testing::Remove;
using kvcast::testing::StoreFull;
using kvcast::testing::StoreTokens;
using kvcast::testing::StoreWindow;
using kvcast::testing::Tokens;

constexpr double kEnoughSeconds = 0.02;
constexpr double kSlackSeconds = 0.004;
constexpr double kMostRatio = 3;
constexpr size_t kSlackBytes = size_t{8} << 20;
constexpr size_t kFirstEvents = 256;
constexpr size_t kMostEvents = 32768;  // WireLimits::max_events / 2
constexpr int kRepeats = 8;
constexpr int64_t kBlock = 4;       // tokens
constexpr int64_t kChain = 64;      // blocks of a chain
constexpr uint64_t kOthers = 1e15;  // hashes of the other source
constexpr uint64_t kOwn = 2e15;     // hashes that the source holds before the measurement
constexpr uint64_t kNew = 3e15;

size_t Entries() {
  return static_cast<size_t>(testing::Setting("KVCAST_DOUBLING_ENTRIES", 100'000));
}

double CpuSeconds() { return static_cast<double>(ThreadCpuNs()) * 1e-9; }

// Input of one source: engine events, or texts in another format.
struct Input {
  std::vector<Event> events;
  std::vector<std::vector<uint8_t>> texts;
  uint64_t number = 0;  // the next event id of TensorRT-LLM

  size_t size() const { return events.size() + texts.size(); }
};

// Appends input of this size.
using InputMaker = std::function<void(size_t count, Input& input)>;

// Appends event i of a kind.
struct Kind {
  const char* name;
  std::function<void(uint64_t i, Input& input)> add;
};

std::vector<TokenId> TokensOf(uint64_t seed, int64_t count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    token = static_cast<TokenId>(seed >> 40);
  }
  return tokens;
}

std::vector<uint8_t> Joined(std::string_view open, const std::vector<std::vector<uint8_t>>& texts,
                            size_t first, size_t count, std::string_view between,
                            std::string_view close) {
  std::vector<uint8_t> all(open.begin(), open.end());
  for (size_t i = first; i < first + count; ++i) {
    if (i > first) all.insert(all.end(), between.begin(), between.end());
    all.insert(all.end(), texts[i].begin(), texts[i].end());
  }
  all.insert(all.end(), close.begin(), close.end());
  return all;
}

// Returns the payload of events [first, first + count).
std::vector<uint8_t> PayloadOf(EventFormat format, const Input& input, size_t first, size_t count) {
  if (format == EventFormat::kTrtllm) return Joined("[", input.texts, first, count, ",", "]");
  if (format == EventFormat::kMooncake) {
    std::vector<uint8_t> head;
    wire::Writer out(head);
    out.ArrayHead(3);
    out.Unsigned(1);
    out.ArrayHead(count);
    out.Close();
    const std::string open(head.begin(), head.end());
    return Joined(open, input.texts, first, count, "", std::string(1, '\0'));
  }
  EventBatch batch;
  batch.events.assign(input.events.begin() + static_cast<ptrdiff_t>(first),
                      input.events.begin() + static_cast<ptrdiff_t>(first + count));
  std::vector<uint8_t> payload;
  EXPECT_TRUE(EncodeBatch(batch, Dialect::kKvcast1, payload).ok());
  return payload;
}

struct Shape {
  EventFormat format = EventFormat::kEngine;
  int64_t groups = 1;           // number of groups that the source has before the measurement
  bool on_cpu = false;          // the source's blocks before the measurement are in host memory
  size_t held = Entries() / 4;  // number of these blocks
  HitReports hit_reports = HitReports::kUnknown;
};

// An index with another source's blocks, and one source that is measured.
class Bench {
 public:
  Bench() {
    // The allocator reuses freed memory. Otherwise, the kernel's cost of new pages would be a part
    // of the result.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    WorkerConfig config;
    config.name = "other";
    EXPECT_TRUE(index_.AddWorker(WorkerId(0), config).ok());
    EventBatch batch;
    for (uint64_t i = 0; i < Entries(); i += kChain) batch.events.push_back(ChainOf(kOthers, i));
    index_.Apply(WorkerId(0), batch);
  }

  // Stores the 64 blocks of a chain.
  static BlockStored ChainOf(uint64_t base, uint64_t i, int64_t group = 0) {
    std::vector<BlockHash> hashes;
    for (uint64_t k = 0; k < kChain; ++k) hashes.push_back(Hash(base + i + k));
    return StoreTokens(std::move(hashes), TokensOf(base + i, kChain * kBlock), std::nullopt, group);
  }

  struct Cost {
    double seconds = 0;
    size_t bytes = 0;
  };
  // Makes input of the given size, and applies it with `a_batch` events at a time.
  Cost Measure(const Shape& shape, const InputMaker& make, size_t count, size_t a_batch) {
    Begin(shape);
    Input input;
    make(count, input);
    std::vector<std::vector<uint8_t>> payloads;
    const size_t size = input.size();
    for (size_t first = 0; first < size; first += a_batch) {
      payloads.push_back(PayloadOf(shape.format, input, first, std::min(a_batch, size - first)));
    }
    const size_t held = HeldBytes();
    const double begin = CpuSeconds();
    for (const auto& payload : payloads) source_->OnBatch(payload, Seq(seq_++));
    const Cost cost = {CpuSeconds() - begin, HeldBytes() - std::min(held, HeldBytes())};
    End();
    return cost;
  }

 private:
  static size_t HeldBytes() {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  }

  void Begin(const Shape& shape) {
    WorkerRegistration config;
    config.worker.name = "measured";
    config.worker.hit_reports = shape.hit_reports;
    config.format = shape.format;
    config.trtllm = {.window_sizes = {4096}, .tokens_per_block = kBlock};
    id_ = WorkerId(id_.value + 1);
    source_ = WorkerIngest::Create(id_, config, index_).value();
    if (shape.format != EventFormat::kEngine) return;
    EventBatch batch;
    for (uint64_t i = 0; i < shape.held; i += kChain) {
      BlockStored chain = ChainOf(kOwn, i, static_cast<int64_t>(i / kChain) % shape.groups);
      if (shape.on_cpu) chain.medium = kMediumCpu;
      batch.events.push_back(std::move(chain));
    }
    index_.Apply(id_, batch);
  }
  void End() {
    source_.reset();
    index_.RemoveWorker(id_);
    index_.Reclaim();
  }

  PrefixIndex index_;
  WorkerId id_{1};
  uint64_t seq_ = 1;
  std::unique_ptr<WorkerIngest> source_;
};

Bench& TheBench() {
  static Bench bench;
  return bench;
}

// Checks that input of twice the size takes at most three times the time and the memory.
void ExpectLinear(const std::string& name, const Shape& shape, const InputMaker& make,
                  size_t a_batch) {
  Bench& bench = TheBench();
  size_t count = kFirstEvents;
  while (count < kMostEvents &&
         bench.Measure(shape, make, count, a_batch).seconds < kEnoughSeconds) {
    count *= 2;
  }
  Bench::Cost once{1e9, SIZE_MAX};
  Bench::Cost twice = once;
  for (int i = 0; i < kRepeats; ++i) {
    const Bench::Cost one = bench.Measure(shape, make, count, a_batch);
    const Bench::Cost two = bench.Measure(shape, make, 2 * count, a_batch);
    once = {std::min(once.seconds, one.seconds), std::min(once.bytes, one.bytes)};
    twice = {std::min(twice.seconds, two.seconds), std::min(twice.bytes, two.bytes)};
    const bool fast = twice.seconds <= kMostRatio * once.seconds + kSlackSeconds;
    const bool small = twice.bytes <= 3 * once.bytes + kSlackBytes;
    if (fast && small) return;
  }
  ADD_FAILURE() << name << (a_batch == 1 ? ", one event a batch: " : ", in one batch: ") << count
                << ": " << once.seconds << " s, " << (once.bytes >> 10)
                << " KiB; twice as many: " << twice.seconds << " s, " << (twice.bytes >> 10)
                << " KiB";
}

// The input has events of the kinds in turn.
void ExpectLinear(const Shape& shape, const std::vector<Kind>& kinds, size_t a_batch) {
  std::string names;
  for (const Kind& kind : kinds) names += std::string(names.empty() ? "" : ", ") + kind.name;
  const InputMaker make = [&kinds](size_t count, Input& input) {
    for (uint64_t i = 0; input.size() < count; ++i) kinds[i % kinds.size()].add(i, input);
  };
  ExpectLinear(names, shape, make, a_batch);
}

void ExpectAllLinear(const Shape& shape, const std::vector<Kind>& kinds) {
  for (size_t i = 0; i < kinds.size(); ++i) {
    for (size_t j = i; j < kinds.size(); ++j) {
      std::vector<Kind> pair = {kinds[i]};
      if (j > i) pair.push_back(kinds[j]);
      ExpectLinear(shape, pair, SIZE_MAX);
      ExpectLinear(shape, pair, 1);
    }
  }
}

BlockStored On(const char* medium, BlockStored event) {
  event.medium = medium;
  return event;
}

Kind Stores() {
  return {"stores at the root", [](uint64_t i, Input& input) {
            input.events.emplace_back(StoreTokens({Hash(kNew + i)}, TokensOf(kNew + i, kBlock)));
          }};
}
Kind Continued() {
  return {"stores behind the store before", [](uint64_t i, Input& input) {
            input.events.emplace_back(StoreTokens({Hash(kNew + i)}, TokensOf(i, kBlock),
                                                  Hash(kNew + (i < 2 ? 0 : i - 2))));
          }};
}
Kind Orphans() {
  return {"stores behind one unknown block", [](uint64_t i, Input& input) {
            input.events.emplace_back(
                StoreTokens({Hash(kNew + i)}, TokensOf(i, kBlock), Hash(kNew - 1)));
          }};
}
Kind SameBlock() {
  return {"copies of one block", [](uint64_t, Input& input) {
            input.events.emplace_back(StoreTokens({Hash(kNew)}, TokensOf(kNew, kBlock)));
          }};
}
Kind OneHash() {
  return {"one hash for many contents", [](uint64_t i, Input& input) {
            input.events.emplace_back(StoreTokens({Hash(kNew)}, TokensOf(kNew + i, kBlock)));
          }};
}
Kind OneContent() {
  return {"many hashes for one content", [](uint64_t i, Input& input) {
            input.events.emplace_back(StoreTokens({Hash(kNew + i)}, TokensOf(kNew, kBlock)));
          }};
}
Kind SharedBlocks() {
  return {"stores of another source's blocks", [](uint64_t i, Input& input) {
            const uint64_t chain = kChain * i % (Entries() - Entries() % kChain);
            input.events.emplace_back(
                StoreTokens({Hash(kOthers + chain)}, TokensOf(kOthers + chain, kBlock)));
          }};
}
Kind Tokenless() {
  return {"stores without tokens in host memory", [](uint64_t i, Input& input) {
            input.events.emplace_back(On(kMediumCpu, StoreFull({Hash(kNew + 7 * i)}, 0, kBlock)));
          }};
}
Kind ManyGroups() {
  return {"stores in 64 groups and 3 tiers", [](uint64_t i, Input& input) {
            const char* const media[] = {kMediumGpu, kMediumCpu, kMediumStorage};
            input.events.emplace_back(
                On(media[i % 3], StoreTokens({Hash(kNew)}, TokensOf(kNew, kBlock), std::nullopt,
                                             static_cast<int64_t>(i % 64))));
          }};
}
Kind WithKeys() {
  return {"stores with extra keys", [](uint64_t i, Input& input) {
            BlockStored event = StoreTokens({Hash(kNew + i)}, TokensOf(kNew + i, kBlock));
            event.extra_keys = {ExtraKeys{ExtraKey::Item("item", static_cast<int64_t>(i % kBlock)),
                                          ExtraKey::Text("salt" + std::to_string(i))}};
            input.events.emplace_back(std::move(event));
          }};
}
Kind Reports() {
  return {"hit reports", [](uint64_t i, Input& input) {
            const uint64_t chain = kChain * i % (Entries() / 4 - Entries() / 4 % kChain);
            input.events.emplace_back(Bench::ChainOf(kOwn, chain));
          }};
}
Kind Removes() {
  return {"removes",
          [](uint64_t i, Input& input) { input.events.emplace_back(Remove({Hash(kOwn + i)})); }};
}
Kind RemovesOfNew() {
  return {"removes of the stored block", [](uint64_t i, Input& input) {
            input.events.emplace_back(Remove({Hash(kNew + i - i % 2)}));
          }};
}
Kind RemovesOfOne() {
  return {"removes of one block",
          [](uint64_t, Input& input) { input.events.emplace_back(Remove({Hash(kNew)})); }};
}
Kind Clears() {
  return {"clears", [](uint64_t, Input& input) { input.events.emplace_back(AllBlocksCleared{}); }};
}
Kind ClearsOfHost() {
  return {"clears of host memory", [](uint64_t, Input& input) {
            input.events.emplace_back(AllBlocksCleared{.medium = kMediumCpu});
          }};
}

std::vector<Kind> AllStores() {
  return {Stores(),       Continued(), Orphans(),    SameBlock(), OneHash(), OneContent(),
          SharedBlocks(), Tokenless(), ManyGroups(), WithKeys(),  Reports()};
}

class DoublingOfStores : public ::testing::TestWithParam<size_t> {
 protected:
  Kind kind() const { return AllStores()[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(Kind, DoublingOfStores, ::testing::Range<size_t>(0, AllStores().size()));

TEST_P(DoublingOfStores, WithOtherStores) {
  for (size_t i = GetParam(); i < AllStores().size(); ++i) {
    std::vector<Kind> kinds = {kind()};
    if (i > GetParam()) kinds.push_back(AllStores()[i]);
    ExpectLinear({}, kinds, SIZE_MAX);
    ExpectLinear({}, kinds, 1);
  }
}

TEST_P(DoublingOfStores, WithRemoves) {
  for (const Kind& removal : {Removes(), RemovesOfNew(), RemovesOfOne()}) {
    ExpectLinear({}, {kind(), removal}, SIZE_MAX);
    ExpectLinear({}, {kind(), removal}, 1);
  }
}

TEST_P(DoublingOfStores, WithClears) {
  for (const Kind& removal : {Clears(), ClearsOfHost()}) {
    ExpectLinear({}, {kind(), removal}, SIZE_MAX);
    ExpectLinear({}, {kind(), removal}, 1);
    ExpectLinear({.on_cpu = true}, {kind(), removal}, SIZE_MAX);
  }
}

TEST(Doubling, RemovesClearsAndReports) {
  ExpectAllLinear({}, {Removes(), RemovesOfNew(), Clears(), ClearsOfHost(), Reports()});
}

// The stores behind one block wait until another store names this block.
TEST(Doubling, ABlockThatManyStoresWaitFor) {
  const Kind named = {
      "a store that names the awaited block", [](uint64_t, Input& input) {
        input.events.emplace_back(StoreTokens({Hash(kNew - 1)}, TokensOf(kNew - 1, kBlock)));
        input.events.emplace_back(Remove({Hash(kNew - 1)}));
      }};
  ExpectLinear({}, {Orphans(), named}, SIZE_MAX);
  ExpectLinear({}, {Orphans(), Orphans(), Orphans(), named, Clears()}, SIZE_MAX);
}

// Engines whose hashes are byte strings, and stores without tokens.
TEST(Doubling, HashesOfBytes) {
  const auto hash = [](uint64_t value) {
    std::array<uint8_t, 32> bytes{};
    std::memcpy(bytes.data(), &value, sizeof(value));
    return BlockHash::FromBytes(bytes);
  };
  const Kind stores = {"stores", [hash](uint64_t i, Input& input) {
                         BlockStored event = StoreFull({hash(i)}, 0, kBlock);
                         if (i > 1) event.parent_block_hash = hash(i - 2);
                         input.events.emplace_back(std::move(event));
                       }};
  const Kind named = {
      "stores with tokens", [hash](uint64_t i, Input& input) {
        input.events.emplace_back(StoreTokens({hash(i)}, TokensOf(i, kBlock), hash(i + 1)));
      }};
  const Kind removes = {"removes", [hash](uint64_t i, Input& input) {
                          input.events.emplace_back(Remove({hash(i - 1)}));
                        }};
  ExpectAllLinear({}, {stores, named, removes, Clears()});
}

TEST(Doubling, TheSizeOfOneEvent) {
  const auto large = [](const char* name, std::function<void(size_t, Input&)> add) {
    ExpectLinear(name, {}, add, SIZE_MAX);
  };
  large("extra keys of a block", [](size_t count, Input& input) {
    BlockStored event = StoreTokens({Hash(kNew)}, TokensOf(kNew, kBlock));
    event.extra_keys.emplace(1, ExtraKeys());
    for (size_t i = 0; i < count; ++i) {
      event.extra_keys->front()->push_back(ExtraKey::Item(std::to_string(i), 0));
    }
    input.events.emplace_back(std::move(event));
  });
  large("blocks", [](size_t count, Input& input) {
    std::vector<BlockHash> hashes;
    for (size_t i = 0; i < count; ++i) hashes.push_back(Hash(kNew + i));
    input.events.emplace_back(
        StoreTokens(hashes, TokensOf(kNew, static_cast<int64_t>(count) * kBlock)));
  });
  large("blocks of a span that names every other block", [](size_t count, Input& input) {
    std::vector<BlockHash> all;
    std::vector<BlockHash> some;
    for (size_t i = 0; i < count; ++i) {
      all.push_back(Hash(kNew + i));
      if (i % 2 == 0) some.push_back(all.back());
    }
    const auto tokens = TokensOf(kNew, static_cast<int64_t>(count) * kBlock);
    input.events.emplace_back(StoreTokens(all, tokens));
    input.events.emplace_back(StoreTokens(some, tokens, std::nullopt, 1));
  });
  large("tokens of a block", [](size_t count, Input& input) {
    input.events.emplace_back(StoreTokens({Hash(kNew)}, TokensOf(kNew, static_cast<int64_t>(count)),
                                          std::nullopt, 0, static_cast<int64_t>(count)));
  });
  large("removes of one event", [](size_t count, Input& input) {
    std::vector<BlockHash> hashes;
    for (size_t i = 0; i < count; ++i) hashes.push_back(Hash(kOwn + i));
    input.events.emplace_back(Remove(hashes));
  });
}

std::vector<uint8_t> MapOf(const std::vector<std::pair<std::string, std::string>>& texts,
                           const std::vector<uint64_t>& hashes) {
  std::vector<uint8_t> bytes;
  wire::Writer out(bytes);
  out.MapHead(texts.size() + 3);
  out.Text("tenant_id");
  out.Text("default");
  for (const auto& [key, text] : texts) {
    out.Text(key);
    out.Text(text);
  }
  out.Text("block_size");
  out.Unsigned(kBlock);
  out.Text("seq_hashes");
  out.ArrayHead(hashes.size());
  for (const uint64_t hash : hashes) out.Unsigned(hash);
  out.Close();
  return bytes;
}

// The cost of a clear of one tier does not depend on the blocks of the other tiers.
TEST(Doubling, ClearsBesideManyBlocksOfAnotherTier) {
  const InputMaker make = [](size_t count, Input& input) {
    for (uint64_t i = 0; input.size() < count; ++i) {
      input.events.emplace_back(StoreTokens({Hash(kNew + i)}, TokensOf(kNew + i, kBlock)));
      input.events.emplace_back(AllBlocksCleared{.medium = kMediumGpu});
    }
  };
  Bench& bench = TheBench();
  const auto seconds = [&](size_t held) {
    return bench.Measure({.on_cpu = true, .held = held}, make, 4096, SIZE_MAX).seconds;
  };
  double few = 1e9;
  double many = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    few = std::min(few, seconds(64));
    many = std::min(many, seconds(Entries()));
    if (many <= 2 * few + kSlackSeconds) return;
  }
  ADD_FAILURE() << few << " s beside few blocks, " << many << " s beside many";
}

TEST(Doubling, Mooncake) {
  const auto event = [](const char* type, const char* medium, uint64_t object,
                        std::vector<uint64_t> hashes) {
    return MapOf({{"event_type", type}, {"medium", medium}, {"object_key", std::to_string(object)}},
                 hashes);
  };
  const std::vector<Kind> kinds = {
      {"stores",
       [&](uint64_t i, Input& in) { in.texts.push_back(event("stored", "cpu", i, {i})); }},
      {"stores of one object",
       [&](uint64_t i, Input& in) {
         in.texts.push_back(event("stored", "cpu", 1, {i, i + 1}));
       }},
      {"stores in another tier",
       [&](uint64_t i, Input& in) { in.texts.push_back(event("stored", "disk", i - 1, {i - 1})); }},
      {"removes",
       [&](uint64_t i, Input& in) { in.texts.push_back(event("removed", "cpu", i - 1, {})); }},
      {"removes of one object",
       [&](uint64_t, Input& in) { in.texts.push_back(event("removed", "cpu", 1, {})); }},
      {"clears", [&](uint64_t, Input& in) { in.texts.push_back(event("cleared", "cpu", 1, {})); }},
      {"bad events", [&](uint64_t, Input& in) { in.texts.push_back({0x80}); }}};
  ExpectAllLinear({.format = EventFormat::kMooncake}, kinds);
}

TEST(Doubling, TensorRtLlm) {
  const auto add = [](Input& input, const std::string& data) {
    const std::string text =
        "{\"event_id\":" + std::to_string(input.number++) + ",\"data\":{" + data + "}}";
    input.texts.emplace_back(text.begin(), text.end());
  };
  const auto store = [](uint64_t hash, const std::string& parent) {
    std::string tokens;
    for (int64_t i = 0; i < kBlock; ++i) {
      tokens +=
          (i > 0 ? ",{\"token_id\":" : "{\"token_id\":") + std::to_string(hash % 1000000007) + "}";
    }
    return "\"type\":\"stored\",\"parent_hash\":" + parent +
           ",\"blocks\":[{\"block_hash\":" + std::to_string(hash) + ",\"tokens\":[" + tokens +
           "]}]";
  };
  const std::vector<Kind> kinds = {
      {"stores", [&](uint64_t i, Input& in) { add(in, store(kNew + i, "null")); }},
      {"stores behind one block", [&](uint64_t i, Input& in) { add(in, store(kNew + i, "5")); }},
      {"removes",
       [&](uint64_t i, Input& in) {
         add(in, "\"type\":\"removed\",\"block_hashes\":[" + std::to_string(kNew + i - 1) + "]");
       }},
      {"moves",
       [&](uint64_t i, Input& in) {
         add(in, "\"type\":\"updated\",\"block_hash\":" + std::to_string(kNew + i - 1) +
                     ",\"cache_level\":{\"old_value\":0,\"new_value\":" +
                     std::to_string(i / 2 % 2) + "}");
       }},
      {"bad events", [&](uint64_t, Input& in) { add(in, "\"type\":\"stored\""); }},
      {"gaps", [&](uint64_t i, Input& in) {
         ++in.number;
         add(in, store(kNew + i, "null"));
       }}};
  ExpectAllLinear({.format = EventFormat::kTrtllm}, kinds);
}

}  // namespace
}  // namespace kvcast::router
