// Diagnoses a worker by the reused tokens that its engine reports
// (kvcast/router/reuse_diagnosis.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/router/reuse_diagnosis.h"

namespace kvcast::router {

struct ReuseAnswer {
  int64_t predicted_tokens = 0;
  int64_t reused_tokens = 0;
};

// Sets the cause of `diagnosis` if the answers show a cause and the blocks in the index show none.
// Answers with a prediction of 0 tokens are ignored. At least kMinTestedPrompts answers are needed.
void ApplyAnswers(std::span<const ReuseAnswer> answers, ReuseDiagnosis& diagnosis);

}  // namespace kvcast::router
