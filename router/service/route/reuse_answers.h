// Tokens that engines say they reused, for the diagnosis of a worker (kvcast/reuse_diagnosis.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/router/reuse_diagnosis.h"

namespace kvcast::router {

struct ReuseAnswer {
  int64_t promised_tokens = 0;
  int64_t reused_tokens = 0;
};

// Names a cause that the answers show, where held blocks show none. Answers without a promise
// are passed over; fewer than kMinTestedPrompts show nothing.
void ApplyAnswers(std::span<const ReuseAnswer> answers, ReuseDiagnosis& diagnosis);

}  // namespace kvcast::router
