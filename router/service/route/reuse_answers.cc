// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/reuse_answers.h"

namespace kvcast::router {

void ApplyAnswers(std::span<const ReuseAnswer> answers, ReuseDiagnosis& diagnosis) {
  if (diagnosis.cause) return;
  const bool misaligned = diagnosis.alignment_told && diagnosis.group_alignment > 0 &&
                          diagnosis.alignment != diagnosis.group_alignment;
  int64_t promises = 0;
  int64_t unused = 0;  // answers with 0 reused tokens
  // Answers whose reuse is the prediction, rounded down to the alignment of the groups.
  int64_t rounded = 0;
  for (const ReuseAnswer& answer : answers) {
    if (answer.predicted_tokens <= 0) continue;
    ++promises;
    unused += answer.reused_tokens == 0;
    if (!misaligned || answer.reused_tokens == answer.predicted_tokens) continue;
    const int64_t off_grid = answer.predicted_tokens % diagnosis.group_alignment;
    rounded += answer.reused_tokens == answer.predicted_tokens - off_grid;
  }
  if (promises < kMinTestedPrompts) return;
  if (rounded * 2 > promises) {
    diagnosis.cause = ReuseCause::kToldAlignmentWrong;
  } else if (diagnosis.groups_learned && unused * 2 > promises) {
    diagnosis.cause = ReuseCause::kNeverAnnounced;
    diagnosis.group = diagnosis.unannounced_group;
  }
}

}  // namespace kvcast::router
