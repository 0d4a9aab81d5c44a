// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/curve_roles.h"

#include <sstream>
#include <utility>

namespace kvcast {
namespace {

constexpr std::pair<CurveRole, std::string_view> kRoleNames[] = {
    {CurveRole::kSubscribe, "subscribe"},
    {CurveRole::kReplay, "replay"},
    {CurveRole::kSnapshot, "snapshot"},
};

Result<uint8_t> ParseRoles(const std::string& text) {
  const Status error(
      StatusCode::kInvalidArgument,
      "the roles must be subscribe, replay or snapshot, and each role may occur at most once");
  if (text.ends_with(',')) return error;
  uint8_t roles = 0;
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) {
    const uint8_t before = roles;
    for (const auto& [role, role_name] : kRoleNames) {
      if (name == role_name) roles |= CurveRoleBit(role);
    }
    if (roles == before) return error;
  }
  return roles;
}

Status ParseLine(const std::string& line, CurveRoles& roles_by_key) {
  std::istringstream words(line);
  std::string roles_text;
  std::string key;
  words >> roles_text;
  if (roles_text.empty() || roles_text.starts_with('#')) return Status();
  words >> key;
  const Result<uint8_t> roles = ParseRoles(roles_text);
  if (!roles.ok()) return roles.status();
  if (Status status = CheckCurveKey(key); !status.ok()) return status;
  roles_by_key[key] |= *roles;
  return Status();
}

}  // namespace

Result<CurveRoles> ParseCurveRoles(const std::string& text) {
  CurveRoles roles_by_key;
  std::istringstream lines(text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (Status status = ParseLine(line, roles_by_key); !status.ok()) {
      return Status(status.code(), "line " + std::to_string(number) + ": " + status.message());
    }
  }
  return roles_by_key;
}

}  // namespace kvcast
