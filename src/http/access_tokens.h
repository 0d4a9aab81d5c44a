// AccessTokens: the bearer tokens of a service, and the role of each token.
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
  kRoute,    // routing decisions, and reports about decisions; includes kQuery
  kObserve,  // metrics, state and the dashboard's data
  kAdmin,    // all requests, also changes and dumps
};

// The name of the role in the token file: "query", "route", "observe" or "admin".
std::string_view AccessRoleName(AccessRole role);

// True: a token with the role `held` allows requests that need the role `needed`.
constexpr bool Includes(AccessRole held, AccessRole needed) {
  return held == needed || held == AccessRole::kAdmin ||
         (held == AccessRole::kRoute && needed == AccessRole::kQuery);
}

// Holds only digests of the tokens. Thread-safe after Read.
class AccessTokens {
 public:
  // Reads lines "ROLE TOKEN"; ROLE is query, route, observe or admin. Empty lines and lines that
  // begin with # are skipped. A token is 1 to 1,024 visible ASCII characters. Not ok
  // (kInvalidArgument): the error is one line with the file name, and with the number of the wrong
  // line. The file must be a regular file of at most 64 KiB that only its owner can access.
  static Result<AccessTokens> Read(const std::string& path);
  // Parses the text of such a file. The errors contain no file name.
  static Result<AccessTokens> Parse(std::string_view text);

  // The role of the token in the value of an Authorization header ("Bearer TOKEN"). nullopt: the
  // value has another form, or the token is unknown. The time does not depend on the number of
  // correct characters in the token.
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
