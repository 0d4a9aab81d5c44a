// SPDX-License-Identifier: Apache-2.0
#include "src/http/access_tokens.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "src/base/check.h"
#include "src/base/secret_file.h"

namespace kvcast {
namespace {

constexpr size_t kMaxTokenBytes = 1024;
constexpr std::pair<std::string_view, AccessRole> kRoles[] = {{"query", AccessRole::kQuery},
                                                              {"route", AccessRole::kRoute},
                                                              {"observe", AccessRole::kObserve},
                                                              {"admin", AccessRole::kAdmin}};

Status Bad(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = std::min(text.find_first_not_of(kBlank), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

bool IsVisible(char c) { return c > ' ' && c < '\x7f'; }

}  // namespace

AccessTokens::Digest AccessTokens::DigestOf(std::string_view token) {
  Digest digest;
  KV_CHECK(EVP_Digest(token.data(), token.size(), digest.data(), nullptr, EVP_sha256(), nullptr) ==
           1);
  return digest;
}

Status AccessTokens::AddLine(std::string_view line) {
  const std::string_view name = line.substr(0, line.find_first_of(" \t"));
  const std::string_view token = Trimmed(line.substr(name.size()));
  const auto* const role =
      std::ranges::find(kRoles, name, &std::pair<std::string_view, AccessRole>::first);
  if (role == std::end(kRoles)) {
    return Bad("unknown role; must be query, route, observe or admin");
  }
  if (token.empty()) return Bad("no token after the role");
  if (token.size() > kMaxTokenBytes) return Bad("the token is longer than 1024 characters");
  if (!std::ranges::all_of(token, IsVisible)) {
    return Bad("the token must consist of visible ASCII characters");
  }
  const Digest digest = DigestOf(token);
  if (std::ranges::find(tokens_, digest, &Token::digest) != tokens_.end()) {
    return Bad("an earlier line has the same token");
  }
  tokens_.push_back({digest, role->second});
  return Status();
}

std::string_view AccessRoleName(AccessRole role) {
  for (const auto& [name, known] : kRoles) {
    if (known == role) return name;
  }
  return "unknown";
}

Result<AccessTokens> AccessTokens::Parse(std::string_view text) {
  AccessTokens tokens;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = Trimmed(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    if (line.empty() || line.starts_with('#')) continue;
    if (const Status status = tokens.AddLine(line); !status.ok()) {
      return Bad("line " + std::to_string(number) + ": " + status.message());
    }
  }
  if (tokens.tokens_.empty()) return Bad("contains no token");
  return tokens;
}

Result<AccessTokens> AccessTokens::Read(const std::string& path) {
  const auto bad = [&](const Status& why) {
    return Bad("token file " + path + ": " + why.message());
  };
  Result<std::string> text = ReadSecretFile(path);
  if (!text.ok()) return bad(text.status());
  auto tokens = Parse(*text);
  OPENSSL_cleanse(text->data(), text->size());
  if (!tokens.ok()) return bad(tokens.status());
  return tokens;
}

std::optional<AccessRole> AccessTokens::RoleOf(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return std::nullopt;
  for (size_t i = 0; i < kScheme.size(); ++i) {  // schemes are compared without regard to case
    if ((authorization[i] | 0x20) != kScheme[i]) return std::nullopt;
  }
  const Digest digest = DigestOf(Trimmed(authorization.substr(kScheme.size())));
  std::optional<AccessRole> role;
  for (const Token& token : tokens_) {
    if (CRYPTO_memcmp(token.digest.data(), digest.data(), digest.size()) == 0) role = token.role;
  }
  return role;
}

}  // namespace kvcast
