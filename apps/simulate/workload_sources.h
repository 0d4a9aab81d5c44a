// The sources of workloads: recorded traces, and a generator of shared prompts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/simulate/workload.h"
#include "apps/support/trace.h"
#include "kvcast/core/status.h"

namespace kvcast::simulate {

struct SliceOptions {
  int64_t slices = 10;
  int64_t requests = 0;  // of a slice; 0: the default of the workload
  uint64_t seed = 1;
};

// The named workloads of `--workload`.
inline constexpr char kAgents[] = "agents";
inline constexpr char kShared[] = "shared";
inline constexpr char kChat[] = "chat";

// Returns the named workload. kShared is generated. The others are read from bundled traces. Error:
// the name is unknown, or the trace is missing or invalid.
Result<Workload> MakeWorkload(std::string_view name, const SliceOptions& options);
// A workload from a file, plain, .gz or .zst. The content determines the format: Mooncake (JSON
// lines with hash_ids), conversations of coding agents (JSON lines with a header per conversation),
// or Azure (CSV with times and lengths; its prompts share nothing). Errors name the file and the
// line. The name of the workload is the path.
Result<Workload> LoadWorkload(const std::string& path, const SliceOptions& options);

// Parse requests of one format into slices. Public for tests. `text` is the content of a file.
// Errors contain `name` as the name of the file.
Result<Workload> ParseMooncake(std::string_view text, const std::string& name,
                               const SliceOptions& options);
Result<Workload> ParseAgents(std::string_view text, const std::string& name,
                             const SliceOptions& options);
Result<Workload> ParseAzure(std::string_view text, const std::string& name,
                            const SliceOptions& options);
// All requests of a Mooncake trace as one slice, with the trace's times.
Slice SliceOfTrace(const std::vector<tools::TraceRequest>& trace);
// Returns requests with a shared prompt and a private question. The popularity of the prompts
// follows Zipf's law.
Workload GenerateShared(const SliceOptions& options);

}  // namespace kvcast::simulate
