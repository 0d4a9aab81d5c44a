// Fuzz target: CURVE key files, lists of CURVE clients, and token files. A second reader accepts
// the same keys. A list or a token file allows exactly the roles that its lines state. No error
// contains a secret.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/stream/curve.h"
#include "src/base/check.h"
#include "src/http/access_tokens.h"
#include "src/stream/net/curve_roles.h"
#include "tests/fuzz/fuzz_input.h"

namespace kvcast {
namespace {

constexpr std::string_view kZ85 =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

// Z85 (ZeroMQ RFC 32): each 5 characters are a number below 2^32 in base 85.
bool IsZ85Key(std::string_view key) {
  if (key.size() != 40) return false;
  for (size_t i = 0; i < key.size(); i += 5) {
    uint64_t number = 0;
    for (const char c : key.substr(i, 5)) {
      const size_t digit = kZ85.find(c);
      if (digit == std::string_view::npos) return false;
      number = number * 85 + digit;
    }
    if (number > UINT32_MAX) return false;
  }
  return true;
}

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words(1);
  for (const char c : line) {
    const bool blank = c == ' ' || (c >= '\t' && c <= '\r');
    if (!blank) words.back() += c;
    if (blank && !words.back().empty()) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void CheckKey(std::string_view text) {
  const std::string_view key = text.substr(0, text.size() - text.ends_with('\n'));
  KV_CHECK(CheckCurveKey(key).ok() == IsZ85Key(key));
  const Result<CurveKeyPair> keys = CurveKeyPair::Parse(text);
  KV_CHECK(keys.ok() == IsZ85Key(key));
  fuzz::CheckReason(keys.status());
  if (keys.ok()) return KV_CHECK(keys->secret_key == key && IsZ85Key(keys->public_key));
  // The error depends on the length of the key alone.
  const Status other = CheckCurveKey(std::string(key.size(), '"'));
  KV_CHECK(keys.status().message() == other.message());
}

// Maps each key to its roles. The second letter of a role stands for the role. `good` becomes false
// if a line is wrong.
std::map<std::string, std::string> ExpectedClients(std::string_view text, bool& good) {
  std::map<std::string, std::string> clients;
  for (const std::string_view line : Lines(text)) {
    const auto words = Words(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    good = good && words.size() >= 2 && IsZ85Key(words[1]);
    if (!good) break;
    std::string roles = words[0] + ",";
    for (std::string seen; !roles.empty() && good;) {
      const std::string role = roles.substr(0, roles.find(','));
      roles.erase(0, role.size() + 1);
      good = (role == "subscribe" || role == "replay" || role == "snapshot") &&
             seen.find(role[1]) == std::string::npos;
      if (!good) break;
      seen += role[1];
      clients[words[1]] += role[1];
    }
  }
  return clients;
}

void CheckClients(const std::string& text) {
  bool good = true;
  const auto expected = ExpectedClients(text, good);
  const Result<CurveRoles> clients = ParseCurveRoles(text);
  fuzz::CheckReason(clients.status());
  KV_CHECK(clients.ok() == good);
  if (!good) return;
  KV_CHECK(clients->size() == expected.size());
  for (const auto& [key, roles] : expected) {
    const auto it = clients->find(key);
    KV_CHECK(it != clients->end());
    const auto allows = [&](CurveRole role) { return (it->second & CurveRoleBit(role)) != 0; };
    KV_CHECK(allows(CurveRole::kSubscribe) == (roles.find('u') != std::string::npos));
    KV_CHECK(allows(CurveRole::kReplay) == (roles.find('e') != std::string::npos));
    KV_CHECK(allows(CurveRole::kSnapshot) == (roles.find('n') != std::string::npos));
  }
}

void CheckTokens(std::string_view text) {
  const std::map<std::string_view, AccessRole> kRoles = {{"query", AccessRole::kQuery},
                                                         {"route", AccessRole::kRoute},
                                                         {"observe", AccessRole::kObserve},
                                                         {"admin", AccessRole::kAdmin}};
  const Result<AccessTokens> tokens = AccessTokens::Parse(text);
  fuzz::CheckReason(tokens.status());
  if (!tokens.ok()) return;
  std::map<std::string, AccessRole> expected;
  for (const std::string_view line : Lines(text)) {
    const auto words = Words(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    KV_CHECK(words.size() == 2 && kRoles.contains(words[0]));
    KV_CHECK(expected.emplace(words[1], kRoles.at(words[0])).second);
  }
  KV_CHECK(!expected.empty());
  for (const auto& [token, role] : expected) {
    KV_CHECK(token.size() <= 1024);
    KV_CHECK(tokens->RoleOf("Bearer " + token) == role);
    KV_CHECK(!tokens->RoleOf(token) && !tokens->RoleOf("Basic " + token));
    const std::string cut = token.substr(0, token.size() - 1);
    KV_CHECK(expected.contains(cut) || !tokens->RoleOf("Bearer " + cut));
  }
  KV_CHECK(!tokens->RoleOf("") && !tokens->RoleOf("Bearer ") && !tokens->RoleOf("Bearer"));
}

}  // namespace
}  // namespace kvcast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = kvcast::fuzz::TextOf({data, size});
  kvcast::CheckKey(text);
  kvcast::CheckClients(std::string(text));
  kvcast::CheckTokens(text);
  return 0;
}
