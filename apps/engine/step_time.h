// StepTime: the duration of one model step of a simulated engine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvcast::tools {

// The time to compute tokens of a prompt. Linear layers cost a constant time per token. In a
// full-attention layer, each token also reads all tokens before it. In a sliding-window layer, each
// token reads at most `window` tokens before it.
struct PrefillTime {
  double token_s = 1.0 / 30000;  // seconds per computed token
  // Seconds per pair of a computed token and a token that it reads, summed over all full-attention
  // layers. 0: attention is not part of the model.
  double full_pair_s = 0;
  double window_pair_s = 0;  // the same for all sliding-window layers
  int64_t window = 0;        // tokens

  // Returns the seconds to compute `tokens` tokens after `context` tokens whose KV exists. Both
  // numbers must not be negative.
  double Seconds(int64_t context, int64_t tokens) const {
    const auto count = static_cast<double>(tokens);
    const double read = static_cast<double>(context) + count / 2;
    const auto in_window = static_cast<double>(std::min(context + tokens, window));
    return count * (token_s + full_pair_s * read + window_pair_s * in_window);
  }

  friend bool operator==(const PrefillTime&, const PrefillTime&) = default;
};

struct StepTime {
  double base_s = 0.008;  // of every step: overhead, and one read of the weights
  PrefillTime prefill;
  double decode_token_s = 0.0001;  // per decoded token
  // Per token of context that a decoded token reads, summed over all full-attention layers.
  double decode_context_s = 0;
  // Factor of all times; above 1 for a slow machine.
  double slowdown = 1;
};

}  // namespace kvcast::tools
