// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/copy/bench_copy.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kvcast/transfer/host_copy_backend.h"
#include "kvcast/transfer/host_pool.h"
#include "kvcast/transfer/transfer_engine.h"
#include "src/transfer/copy_planner.h"

namespace kvcast::tools {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

void Fill(std::byte* memory, size_t bytes, uint64_t seed) {
  for (size_t at = 0; at + 8 <= bytes; at += 8) {
    const uint64_t word = (at ^ seed) * 0x9E3779B97F4A7C15u;
    std::memcpy(memory + at, &word, 8);
  }
}

// The simplest copy with streaming stores: no blocks, no batches, no prefetch.
void StreamPlainly(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__x86_64__)
  for (size_t at = 0; at + 64 <= bytes; at += 64) {
    for (size_t i = 0; i < 64; i += 16) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + i), value);
    }
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

// The copies of one fragment size, from random blocks of `gpu` to random slots of `host`.
class Cell {
 public:
  static constexpr uint64_t kSeed = 0x5EED;

  Cell(HostPool& gpu, HostPool& host, size_t payload, size_t fragment, int spread)
      : gpu_(gpu),
        host_(host),
        payload_(payload),
        fragment_(fragment),
        places_(payload / fragment * static_cast<size_t>(spread)) {
    // Block 0 is the null block.
    for (size_t i = 0; i < places_; ++i) {
      blocks_.push_back(BlockId(static_cast<uint32_t>(i + 1)));
      slots_.push_back(SlotId(static_cast<uint32_t>(i)));
    }
    std::mt19937_64 random(fragment);
    std::shuffle(blocks_.begin(), blocks_.end(), random);
    std::shuffle(slots_.begin(), slots_.end(), random);
    blocks_.resize(payload / fragment);
    slots_.resize(payload / fragment);
  }

  Result<std::unique_ptr<TransferEngine>> Engine(int threads, bool streaming) const {
    auto backend = MakeHostCopyBackend({.threads = threads, .streaming = streaming});
    if (!backend.ok()) return backend.status();
    TransferConfig config;
    const BlockPart part{.base = gpu_.base(), .block_stride = fragment_, .row_bytes = fragment_};
    config.groups.push_back({{{part}, static_cast<int64_t>(places_) + 1}, 1});
    config.host = {host_.base(), host_.bytes(), fragment_};
    return TransferEngine::Create(std::move(config), std::move(backend).value());
  }

  // Returns the rate of one store in bytes per second. The time begins with the submission.
  double Time(TransferEngine& engine) {
    const TransferGroup group{GroupIdx(0), 0, blocks_, slots_};
    const auto start = Clock::now();
    engine.Submit({TransferJobId(next_job_++), CopyDirection::kStore, {&group, 1}, nullptr});
    results_.clear();
    while (results_.empty()) {
      engine.WaitAll();
      engine.Poll(results_);
    }
    return static_cast<double>(payload_) / Since(start);
  }

  double TimeContiguous(CopyBackend& backend) const {
    const CopyOp op{gpu_.base() + fragment_, host_.base(), payload_, 0, 0, 1};
    const auto start = Clock::now();
    const auto ticket = backend.Submit(CopyDirection::kStore, {&op, 1}, nullptr);
    backend.Wait(*ticket);
    return static_cast<double>(payload_) / Since(start);
  }

  // Each thread copies one contiguous part of the payload.
  double TimePlainStreaming(int threads) const {
    const size_t piece = payload_ / static_cast<size_t>(threads) / 64 * 64;
    const auto start = Clock::now();
    std::vector<std::thread> others;
    for (int i = 0; i < threads; ++i) {
      const size_t at = static_cast<size_t>(i) * piece;
      const auto stream = [this, at, piece] {
        StreamPlainly(host_.base() + at, gpu_.base() + fragment_ / 64 * 64 + at, piece);
      };
      if (i + 1 < threads) {
        others.emplace_back(stream);
      } else {
        stream();
      }
    }
    for (std::thread& thread : others) thread.join();
    return static_cast<double>(piece * static_cast<size_t>(threads)) / Since(start);
  }

  Status Verify(TransferEngine& engine) {
    Fill(gpu_.base(), gpu_.bytes(), kSeed);
    std::memset(host_.base(), 0xEE, host_.bytes());
    Time(engine);
    if (!results_[0].status.ok()) return results_[0].status;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const std::byte* const source = gpu_.base() + blocks_[i].value * fragment_;
      if (std::memcmp(host_.base() + slots_[i].value * fragment_, source, fragment_) != 0) {
        return {StatusCode::kInternal, "bytes did not arrive"};
      }
    }
    return {};
  }

 private:
  HostPool& gpu_;
  HostPool& host_;
  const size_t payload_;
  const size_t fragment_;
  const size_t places_;  // blocks in each pool, without the null block
  std::vector<BlockId> blocks_;
  std::vector<SlotId> slots_;
  std::vector<TransferResult> results_;
  uint64_t next_job_ = 0;
};

Result<CopyBenchCell> RunCell(const CopyBenchConfig& config, HostPool& gpu, HostPool& host,
                              size_t fragment) {
  const size_t payload = config.payload_bytes / fragment * fragment;
  Cell cell(gpu, host, payload, fragment, config.spread);
  auto ours = cell.Engine(config.threads, true);
  auto plain = cell.Engine(config.threads, false);
  auto contiguous = MakeHostCopyBackend({.threads = config.threads, .streaming = true});
  for (const Status& status : {ours.status(), plain.status(), contiguous.status()}) {
    if (!status.ok()) return status;
  }
  for (TransferEngine* engine : {ours->get(), plain->get()}) {
    if (Status status = cell.Verify(*engine); !status.ok()) return status;
  }
  std::vector<double> ceilings, our_ratios, plain_ratios, to_plain, to_streaming;
  double before = cell.TimeContiguous(**contiguous);
  for (int cycle = 0; cycle < config.cycles; ++cycle) {
    const double our_rate = cell.Time(**ours);
    const double between = cell.TimeContiguous(**contiguous);
    to_streaming.push_back(our_rate / cell.TimePlainStreaming(config.threads));
    const double plain_rate = cell.Time(**plain);
    const double after = cell.TimeContiguous(**contiguous);
    ceilings.push_back(between);
    our_ratios.push_back(2 * our_rate / (before + between));
    plain_ratios.push_back(2 * plain_rate / (between + after));
    to_plain.push_back(our_ratios.back() / plain_ratios.back());
    before = after;
  }
  return CopyBenchCell{.fragment_bytes = fragment,
                       .ceiling = Quantile(ceilings, 0.5),
                       .ours = Quantile(our_ratios, 0.5),
                       .plain = Quantile(plain_ratios, 0.5),
                       .ours_p10 = Quantile(our_ratios, 0.1),
                       .ours_p90 = Quantile(our_ratios, 0.9),
                       .ours_to_plain = Quantile(to_plain, 0.5),
                       .ours_to_streaming = Quantile(to_streaming, 0.5)};
}

}  // namespace

Status RunCopyBench(const CopyBenchConfig& config,
                    const std::function<void(const CopyBenchCell&)>& done) {
  const size_t largest = *std::max_element(config.fragments.begin(), config.fragments.end());
  if (config.payload_bytes < largest) {
    return {StatusCode::kInvalidArgument, "the payload is smaller than the largest fragment"};
  }
  const size_t pool = config.payload_bytes * static_cast<size_t>(config.spread);
  auto gpu = HostPool::Create({.bytes = pool + largest});
  if (!gpu.ok()) return gpu.status();
  auto host = HostPool::Create({.bytes = pool});
  if (!host.ok()) return host.status();
  for (const size_t fragment : config.fragments) {
    const auto cell = RunCell(config, *gpu, *host, fragment);
    if (!cell.ok()) return cell.status();
    done(*cell);
  }
  return {};
}

PlannerBench RunPlannerBench() {
  constexpr size_t kBlocks = 4096;
  constexpr size_t kLayers = 64;
  constexpr size_t kRow = 512;
  constexpr int kRounds = 21;
  // A planner uses only the addresses, so no byte is read or written.
  static std::byte nowhere[1];
  GroupLayout layout{{}, kBlocks + 1};
  for (size_t i = 0; i < kLayers; ++i) {
    layout.parts.push_back({.base = nowhere, .block_stride = kRow, .row_bytes = kRow});
  }
  const size_t block_bytes = layout.block_bytes();
  const HostLayout host{nowhere, kBlocks * block_bytes, block_bytes};
  std::vector<size_t> places(kBlocks);
  std::iota(places.begin(), places.end(), size_t{0});
  std::mt19937_64 random(1);
  std::vector<double> seconds;
  transfer::MoveSorter sorter;
  transfer::CopyPlanner planner({});
  transfer::CopyBatch batch;
  std::vector<transfer::BlockMove> moves;
  size_t copies = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::shuffle(places.begin(), places.end(), random);
    moves.clear();
    for (size_t i = 0; i < kBlocks; ++i) {
      moves.push_back(
          {BlockId(static_cast<uint32_t>(1 + places[i])), 0, block_bytes, i * block_bytes});
    }
    copies = 0;
    const auto start = Clock::now();
    (void)sorter.Prepare(CopyDirection::kLoad, layout, host, moves);
    planner.Start(CopyDirection::kLoad, layout, host.base, moves);
    for (bool ended = false; !ended;) {
      batch.Clear();
      ended = planner.Fill(batch);
      copies += batch.size();
    }
    seconds.push_back(Since(start) / static_cast<double>(copies));
  }
  return {copies, Quantile(seconds, 0.5)};
}

double CopyTarget(size_t fragment_bytes) {
  constexpr std::pair<size_t, double> kTargets[] = {
      {65536, 0.95}, {32768, 0.88}, {16384, 0.75}, {8192, 0.60}, {4096, 0.45}};
  for (const auto& [from, target] : kTargets) {
    if (fragment_bytes >= from) return target;
  }
  return 0;
}

}  // namespace kvcast::tools
