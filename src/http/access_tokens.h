// AccessTokens: the bearer tokens of a service, and what each token allows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast {

enum class AccessRole : uint8_t {
  kQuery,    // queries
  kRoute,    // decisions and reports about them; includes kQuery
  kObserve,  // metrics, state and the dashboard's data
  kAdmin,    // all requests, also changes and dumps
};

// As in the file of tokens: "query", "route", "observe" or "admin".
std::string_view AccessRoleName(AccessRole role);

// True: a token with the role `held` allows what needs `needed`.
constexpr bool Includes(AccessRole held, AccessRole needed) {
  return held == needed || held == AccessRole::kAdmin ||
         (held == AccessRole::kRoute && needed == AccessRole::kQuery);
}

// Holds digests of the tokens, and not the tokens. Thread-safe after Read.
class AccessTokens {
 public:
  // Reads lines "ROLE TOKEN"; ROLE is query, route, observe or admin. Empty lines and lines that
  // begin with # are skipped. A token is 1 to 1,024 visible ASCII characters. Not ok
  // (kInvalidArgument): one line that names the file, and the wrong line by its number. The file
  // must be a regular file of at most 64 KiB that only its owner can access.
  static Result<AccessTokens> Read(const std::string& path);
  // The same for the text of a file. Errors do not name a file.
  static Result<AccessTokens> Parse(std::string_view text);

  // The role of the token in the value of an Authorization header ("Bearer TOKEN"). nullopt: no
  // such token. The time does not depend on how much of a token is right.
  std::optional<AccessRole> RoleOf(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Token {
    Digest digest;
    AccessRole role;
  };
  static Digest DigestOf(std::string_view token);
  Status AddLine(std::string_view line);

  std::vector<Token> tokens_;
};

}  // namespace kvcast
