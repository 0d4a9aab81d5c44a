// StepWork and StepCost: the work of an engine's steps, and the seconds that the work takes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvcast {

// The parts of a step's work whose cost is constant per unit.
enum class WorkPart : uint8_t {
  kSteps,          // one per step: overhead, and the read of the weights
  kPrefillTokens,  // computed tokens of prompts
  kPrefillPairs,   // pairs of a computed token of a prompt and a token that it reads
  kDecodeTokens,   // one per decoding request and step
  kDecodeContext,  // tokens that decoding requests read
};
inline constexpr size_t kWorkParts = 5;

// An amount of each part. Amounts of several steps can be added.
struct StepWork {
  std::array<double, kWorkParts> amount{};

  double& operator[](WorkPart part) { return amount[static_cast<size_t>(part)]; }
  double operator[](WorkPart part) const { return amount[static_cast<size_t>(part)]; }
  StepWork& operator+=(const StepWork& other) {
    for (size_t i = 0; i < kWorkParts; ++i) amount[i] += other.amount[i];
    return *this;
  }
  StepWork& operator-=(const StepWork& other) {
    for (size_t i = 0; i < kWorkParts; ++i) amount[i] -= other.amount[i];
    return *this;
  }
  // Adds the computation of `tokens` tokens of a prompt after `context` tokens.
  void AddPrefill(int64_t context, int64_t tokens) {
    const auto count = static_cast<double>(tokens);
    (*this)[WorkPart::kPrefillTokens] += count;
    (*this)[WorkPart::kPrefillPairs] += count * (static_cast<double>(context) + count / 2);
  }
};

// Seconds per unit of each part.
struct StepCost {
  std::array<double, kWorkParts> seconds{};

  bool operator==(const StepCost&) const = default;
  double operator[](WorkPart part) const { return seconds[static_cast<size_t>(part)]; }
  double Of(const StepWork& work) const {
    double sum = 0;
    for (size_t i = 0; i < kWorkParts; ++i) sum += seconds[i] * work.amount[i];
    return sum;
  }
  // Seconds to compute `tokens` tokens of a prompt after `context` tokens, without the parts of the
  // steps that do not depend on the prompt.
  double Prefill(int64_t context, int64_t tokens) const {
    StepWork work;
    work.AddPrefill(context, tokens);
    return Of(work);
  }
};

}  // namespace kvcast
