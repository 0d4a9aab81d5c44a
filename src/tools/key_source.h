// KeySource: how a replayed run's events and prompts get their keys in the index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/prefix_index.h"
#include "src/tools/scenario.h"

namespace kvcast::tools {

enum class KeyMode : uint8_t {
  kEngineHash,   // the engine's own hashes; its algorithm and seed are known
  kToken,        // content keys, learned from the events and from which blocks the engine caches
  kTokenEvents,  // from the events alone, and the hash unit
};
// "engine-hash", "token", "token-events".
std::optional<KeyMode> ParseKeyMode(std::string_view name);

inline constexpr const char* kUnexplained = "unexplained";

class KeySource {
 public:
  virtual ~KeySource() = default;
  virtual EventBatch Rekey(EventBatch batch) = 0;
  // What the index left out of it (see PrefixIndex::Apply).
  virtual void NoteLeftOut(std::span<const size_t> positions) = 0;
  virtual std::vector<BlockHash> Chain(std::span<const TokenId> tokens,
                                       const HashInputs& inputs) = 0;
  // Why the first `hit` tokens are not promised: the reason of a hash that they need, or
  // kUnexplained.
  virtual std::string WhyBelow(std::span<const TokenId> tokens, const HashInputs& inputs,
                               int64_t hit) = 0;
  // (group, hash) entries that were announced but not passed on.
  virtual uint64_t held_back() const = 0;
};

// Not ok: the configuration is not valid.
Result<std::unique_ptr<KeySource>> MakeKeySource(const ScenarioConfig& config, KeyMode mode);

}  // namespace kvcast::tools
