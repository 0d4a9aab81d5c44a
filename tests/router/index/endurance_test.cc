// Row E2 of tests/RELIABILITY.md: 16 workers store, trim and remove prompts for a long time. Every
// answer and every counter is right, and the time of a block operation and the memory stay flat.
//
// KVCAST_ENDURANCE_OPS sets the number of block operations (default: 4 million). Time and memory
// are judged only from kJudgedOps on.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>

#include "src/base/clock.h"
#include "tests/support/index_events.h"
#include "tests/support/setting.h"

namespace kvcast::testing {
namespace {

constexpr uint32_t kWorkers = 16;
constexpr uint64_t kPrompts = 1024;  // a worker stores them one after the other, again and again
constexpr uint64_t kPromptsHeld = 64;
constexpr int64_t kBlocks = 256;  // of a prompt
constexpr int64_t kBlock = 16;
constexpr int64_t kWindow = 128;
// The engine trims the window group of a prompt two times before it removes the prompt.
constexpr int64_t kFrontTrimmed = 100;  // the window has left these blocks
constexpr int64_t kTailTrimmed = 200;   // the blocks from this block on are evicted
constexpr uint64_t kOpsOfAStep = 4 * kBlocks;
constexpr uint64_t kJudgedOps = 1'000'000'000;
constexpr double kMostDrift = 1.05;
constexpr double kMostMoreMib = 8;

uint64_t Ops() {
  return static_cast<uint64_t>(testing::Setting("KVCAST_ENDURANCE_OPS", 4'000'000));
}

double ResidentMib() {
  std::ifstream in("/proc/self/statm");
  uint64_t all = 0;
  uint64_t resident = 0;
  in >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

std::vector<BlockHash> Part(uint64_t prompt, int64_t first, int64_t end) {
  return Hashes(1 + prompt * kBlocks + static_cast<uint64_t>(first), end - first);
}

// The batches of one prompt, in their order.
struct Life {
  explicit Life(uint64_t prompt)
      : store(Batch(StoreFull(Part(prompt, 0, kBlocks), 0),
                    StoreWindow(Part(prompt, 0, kBlocks), 1, kWindow))),
        trim_front(Batch(Remove(Part(prompt, 0, kFrontTrimmed), 1))),
        trim_tail(Batch(Remove(Part(prompt, kTailTrimmed, kBlocks), 1))),
        remove(Batch(Remove(Part(prompt, kFrontTrimmed, kTailTrimmed), 1),
                     Remove(Part(prompt, 0, kBlocks), 0))) {}
  EventBatch store;
  EventBatch trim_front;
  EventBatch trim_tail;
  EventBatch remove;
};

class Endurance : public ::testing::Test {
 protected:
  Endurance() {
    for (uint64_t prompt = 0; prompt < kPrompts; ++prompt) lives_.emplace_back(prompt);
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      asked_.emplace_back(worker);
      EXPECT_TRUE(
          index_.AddWorker(asked_.back(), Registered({Full(kBlock), Window(kWindow, kBlock)}))
              .ok());
    }
  }
  // One step of each worker.
  void Step() {
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      index_.Apply(asked_[worker], LifeOf(worker, 0).store);
      if (step_ >= kPromptsHeld - 2) {
        index_.Apply(asked_[worker], LifeOf(worker, kPromptsHeld - 2).trim_front);
      }
      if (step_ >= kPromptsHeld - 1) {
        index_.Apply(asked_[worker], LifeOf(worker, kPromptsHeld - 1).trim_tail);
      }
      if (step_ >= kPromptsHeld) {
        index_.Apply(asked_[worker], LifeOf(worker, kPromptsHeld).remove);
      }
    }
    ++step_;
  }
  // Compares the answers for one prompt.
  void Check(uint64_t prompt) {
    const auto chain = Part(prompt, 0, kBlocks);
    const auto matches = index_.Match(
        {.hash_block_size = kBlock, .prompt_tokens = kBlocks * kBlock + 1, .hashes = chain},
        asked_);
    ASSERT_EQ(matches.size(), kWorkers);
    for (const WorkerMatch& match : matches) {
      EXPECT_EQ(match.gpu_tokens, Expected(match.worker.value, prompt)) << "step " << step_;
      EXPECT_TRUE(match.certain);
    }
  }
  void CheckCounters() {
    for (const WorkerId worker : asked_) {
      const IndexCounters counters = index_.counters(worker);
      EXPECT_EQ(counters.stored_blocks, step_ * 2 * kBlocks);
      EXPECT_EQ(counters.removed_blocks, counters.stored_blocks - counters.residencies);
      EXPECT_EQ(counters.unknown_removes, 0u);
    }
  }
  uint64_t step() const { return step_; }

 private:
  // The prompt that the worker stored `age` steps before the current step.
  const Life& LifeOf(uint32_t worker, uint64_t age) const {
    return lives_[PromptOf(worker, step_ - age)];
  }
  // Workers with adjacent ids hold common prompts.
  static uint64_t PromptOf(uint32_t worker, uint64_t step) {
    return (step + worker * 16) % kPrompts;
  }
  int64_t Expected(uint32_t worker, uint64_t prompt) const {
    for (uint64_t age = 0; age < std::min(kPromptsHeld, step_); ++age) {
      if (PromptOf(worker, step_ - 1 - age) != prompt) continue;
      return (age == kPromptsHeld - 1 ? kTailTrimmed : kBlocks) * kBlock;
    }
    return 0;
  }

  std::vector<Life> lives_;
  std::vector<WorkerId> asked_;
  PrefixIndex index_;
  uint64_t step_ = 0;
};

TEST_F(Endurance, AnswersCountersTimeAndMemoryDoNotChange) {
  constexpr uint64_t kParts = 20;
  const uint64_t steps = std::max(Ops() / (kOpsOfAStep * kWorkers), uint64_t{kPromptsHeld * 3});
  std::vector<double> ns_per_op;
  double mib = 0;
  for (uint64_t part = 0; part < kParts; ++part) {
    const int64_t begin_us = ThreadCpuUs();
    const uint64_t before = step();
    while (step() < steps * (part + 1) / kParts) {
      Step();
      if (step() % 16 == 0) Check(step() * 7919 % kPrompts);
    }
    const auto ops = static_cast<double>((step() - before) * kOpsOfAStep * kWorkers);
    ns_per_op.push_back(1000.0 * static_cast<double>(ThreadCpuUs() - begin_us) / ops);
    for (uint64_t prompt = 0; prompt < kPrompts; prompt += 13) Check(prompt);
    CheckCounters();
    if (HasFailure()) return;
    if (part == 1) mib = ResidentMib();
  }
  const double first = std::min(ns_per_op[1], ns_per_op[2]);
  const double last = std::min(ns_per_op[kParts - 2], ns_per_op[kParts - 1]);
  const double more_mib = ResidentMib() - mib;
  std::printf(
      "%llu block operations; %.1f ns each in parts 2 and 3 of 20, %.1f ns in the last two; "
      "%.1f MiB more memory\n",
      static_cast<unsigned long long>(step() * kOpsOfAStep * kWorkers), first, last, more_mib);
  if (Ops() < kJudgedOps) return;
  EXPECT_LE(last, first * kMostDrift);
  EXPECT_LE(more_mib, kMostMoreMib);
}

}  // namespace
}  // namespace kvcast::testing
