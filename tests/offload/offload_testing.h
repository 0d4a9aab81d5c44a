// A manager for tests. Its keys are numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/offload/offload_manager.h"

namespace kvcast::offload {

using Numbers = std::vector<int64_t>;

inline OffloadKey Key(int64_t number, uint32_t group = 0) {
  OffloadKey key;
  key.digest.size = 32;
  // The number takes the first 8 bytes, little-endian. The other bytes are 0.
  for (size_t i = 0; i < 8; ++i) {
    key.digest.data[i] = static_cast<uint8_t>(static_cast<uint64_t>(number) >> (8 * i));
  }
  key.group = GroupIdx(group);
  return key;
}

inline int64_t NumberOf(const OffloadKey& key) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) number |= uint64_t{key.digest.data[i]} << (8 * i);
  return static_cast<int64_t>(number);
}

inline std::vector<OffloadKey> Keys(const Numbers& numbers, uint32_t group = 0) {
  std::vector<OffloadKey> keys;
  for (const int64_t number : numbers) keys.push_back(Key(number, group));
  return keys;
}

inline Numbers ToNumbers(const std::vector<OffloadKey>& keys) {
  Numbers numbers;
  for (const OffloadKey& key : keys) numbers.push_back(NumberOf(key));
  return numbers;
}

inline Numbers ToNumbers(const std::vector<SlotId>& slots) {
  Numbers numbers;
  for (const SlotId slot : slots) numbers.push_back(slot.value);
  return numbers;
}

// Room for `slots` chunks of one page, in one group.
inline OffloadConfig Pages(int64_t slots, EvictionPolicyKind policy = EvictionPolicyKind::kLru) {
  OffloadConfig config;
  config.chunk_bytes = {4096};
  config.capacity_bytes = slots * 4096;
  config.policy = policy;
  return config;
}

inline OffloadConfig AsVllm(OffloadConfig config) {
  config.compatible = true;
  return config;
}

struct Stored {
  Numbers keys;
  Numbers slots;
  Numbers evicted;
  friend bool operator==(const Stored&, const Stored&) = default;
};

inline void PrintTo(const Stored& stored, std::ostream* out) {
  *out << "keys " << ::testing::PrintToString(stored.keys) << ", slots "
       << ::testing::PrintToString(stored.slots) << ", evicted "
       << ::testing::PrintToString(stored.evicted);
}

class TestOffload {
 public:
  explicit TestOffload(const OffloadConfig& config) {
    auto created = OffloadManager::Create(config);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    manager_ = std::move(created).value();
  }
  ~TestOffload() {
    const Status status = manager_->CheckInvariants();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  OffloadManager& manager() { return *manager_; }

  LookupResult Lookup(int64_t number, uint64_t request = 0) {
    return manager_->Lookup(Key(number), OffloadRequestId(request));
  }
  // Returns nullopt if there is no room.
  std::optional<Stored> Prepare(const Numbers& numbers) {
    const Status status = manager_->PrepareStore(Keys(numbers), plan_);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kExhausted);
      return std::nullopt;
    }
    return Stored{ToNumbers(plan_.keys), ToNumbers(plan_.slots), ToNumbers(plan_.evicted)};
  }
  void Complete(const Numbers& numbers, bool success = true) {
    manager_->CompleteStore(Keys(numbers), success);
  }
  // Prepares and completes the store.
  std::optional<Stored> Store(const Numbers& numbers) {
    auto stored = Prepare(numbers);
    if (stored) Complete(stored->keys);
    return stored;
  }
  // Returns the slots.
  Numbers Load(const Numbers& numbers) {
    std::vector<SlotId> slots;
    EXPECT_TRUE(manager_->PrepareLoad(Keys(numbers), slots).ok());
    return ToNumbers(slots);
  }
  void EndLoad(const Numbers& numbers) { EXPECT_TRUE(manager_->CompleteLoad(Keys(numbers)).ok()); }
  void Touch(const Numbers& numbers) { manager_->Touch(Keys(numbers)); }

  // Texts: "+1 2" for a store of chunks 1 and 2, "-3" for a removal, "cleared" for a clear.
  std::vector<std::string> Events() {
    std::vector<std::string> texts;
    for (const OffloadEvent& event : manager_->TakeEvents()) {
      if (event.kind == OffloadEvent::Kind::kCleared) {
        texts.emplace_back("cleared");
        continue;
      }
      std::string text = event.kind == OffloadEvent::Kind::kStored ? "+" : "-";
      for (size_t i = 0; i < event.keys.size(); ++i) {
        text += (i == 0 ? "" : " ") + std::to_string(NumberOf(event.keys[i]));
      }
      texts.push_back(text);
    }
    return texts;
  }

  // Keys of T1 and T2, oldest first. Only for ARC.
  Numbers T1() const { return Part(true); }
  Numbers T2() const { return Part(false); }
  Numbers Idle() const {
    Numbers numbers;
    for (const auto& chunk : manager_->Inspect().chunks) {
      if (chunk.readers == 0) numbers.push_back(NumberOf(chunk.key));
    }
    return numbers;
  }
  Numbers B1() const { return ToNumbers(manager_->Inspect().ghosts_t1); }
  Numbers B2() const { return ToNumbers(manager_->Inspect().ghosts_t2); }
  double Target() const { return manager_->Inspect().t1_target; }

 private:
  Numbers Part(bool first) const {
    const OffloadManager::State state = manager_->Inspect();
    Numbers numbers;
    for (size_t i = 0; i < state.chunks.size(); ++i) {
      if ((std::cmp_less(i, state.t1_chunks)) == first) {
        numbers.push_back(NumberOf(state.chunks[i].key));
      }
    }
    return numbers;
  }

  std::unique_ptr<OffloadManager> manager_;
  StorePlan plan_;
};

}  // namespace kvcast::offload
