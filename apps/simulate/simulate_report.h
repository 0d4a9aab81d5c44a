// The output of `kvcast simulate`: a table, one line of JSON, and a folder with pictures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "apps/simulate/matrix.h"
#include "apps/simulate/simulate_options.h"
#include "kvcast/core/status.h"

namespace kvcast::simulate {

// An arm is a selection rule with an index. Each workload has one row per arm. Times, imbalance and
// TTFT error are means over the slices. Reused, loaded and wrong tokens are shares of the prompt
// tokens of all slices. The ratio is the mean TTFT divided by the mean TTFT of the first arm.
std::string RenderTable(const Matrix& matrix);
// {"runs": [{workload, slice, rule, index, ttft_mean_ms, ttft_p99_ms, prompt_tokens, reused_tokens,
// wrong_promise_tokens, exact_checked, exact_equal}], "pairs": [{workload, a, b, ratio, low,
// high}]}, without a line end. Further members of a run: ttft_p50_ms, ttft_error_p50,
// ttft_error_p90, loaded_tokens, refused and preempted (requests), seconds (virtual time of the
// run), imbalance (requests of the busiest engine, divided by the mean). `a` and `b` are
// "rule/index". RunResult and PairedRatio describe the values.
std::string RenderJson(const Matrix& matrix);
// Returns the rules, each on several lines: name and description, parameters, source.
std::string RenderRules();
// Creates the folder of WriteReport, so that an error is reported before the simulation.
Status CreateReportFolder(const std::string& folder);
// Writes report.html, and three SVG pictures for each workload: the distribution of the time to the
// first token, the reuse over time, and the requests per engine. Creates the folder if it is
// missing.
Status WriteReport(const std::string& folder, const Matrix& matrix);

}  // namespace kvcast::simulate
