// The members of a source's JSON: their names, and the readers of their values. docs/options.md
// describes each member. A test compares the page with these lists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {

// How the text of a command-line flag is converted to the member's JSON.
enum class MemberShape : uint8_t { kText, kInteger, kBool, kTexts, kIntegers, kGroups, kPairs };

struct SourceMember {
  const char* name;
  MemberShape shape;
  // Writes the value to the source. Not ok: one line that names the member.
  Status (*read)(const Json&, const std::string& name, WorkerRegistration&);
};

// A member of an element of `groups`.
struct GroupMember {
  const char* name;
  MemberShape shape;
  Status (*read)(const Json&, const std::string& name, GroupSpec&);
};

std::span<const SourceMember> SourceMembers();
std::span<const GroupMember> GroupMembers();
// nullptr: a source has no such member.
const SourceMember* FindSourceMember(std::string_view name);

inline constexpr std::pair<EventFormat, const char*> kEventFormatNames[] = {
    {EventFormat::kEngine, "engine"},
    {EventFormat::kMooncake, "mooncake"},
    {EventFormat::kTrtllm, "trtllm"},
};

inline constexpr std::pair<OffloadRule, const char*> kOffloadRuleNames[] = {
    {OffloadRule::kConnector, "connector"},
    {OffloadRule::kOffloadScheduler, "offload_scheduler"},
    {OffloadRule::kMirroredPool, "mirrored_pool"},
};

}  // namespace kvcast::router
