// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/workload_sources.h"

#include <algorithm>

#include "apps/support/file.h"

namespace kvcast::simulate {
namespace {

constexpr char kBundledChat[] = "traces/mooncake_conversation_40min.jsonl.zst";
constexpr char kBundledAgents[] = "traces/coding_agents.jsonl.zst";

// The first line that is not empty.
std::string_view FirstLine(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.substr(0, text.find('\n'));
}

}  // namespace

Result<Workload> MakeWorkload(std::string_view name, const SliceOptions& options) {
  if (name == kShared) return GenerateShared(options);
  if (name != kAgents && name != kChat) {
    return Status(StatusCode::kInvalidArgument,
                  "--workload: expected agents, shared or chat, got '" + std::string(name) + "'");
  }
  auto path = tools::FindDataFile(name == kAgents ? kBundledAgents : kBundledChat);
  if (!path.ok()) return path.status();
  auto workload = LoadWorkload(*path, options);
  if (workload.ok()) workload->name = name;
  return workload;
}

Result<Workload> LoadWorkload(const std::string& path, const SliceOptions& options) {
  auto text = tools::ReadFile(path);
  if (!text.ok()) return text.status();
  const std::string_view first = FirstLine(*text);
  if (first.find("\"sub_agents\"") != first.npos || first.find("\"conv\"") != first.npos) {
    return ParseAgents(*text, path, options);
  }
  if (first.starts_with("TIMESTAMP") || (!first.empty() && first[0] != '{')) {
    return ParseAzure(*text, path, options);
  }
  return ParseMooncake(*text, path, options);
}

}  // namespace kvcast::simulate
