// `kvcast keygen`: makes a CURVE key pair.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "apps/commands/commands.h"
#include "apps/support/key_file.h"
#include "kvcast/stream/curve.h"

namespace kvcast::tools {
int RunKeygen(const KeygenOptions& options) {
  const auto keys = CurveKeyPair::Generate();
  if (!keys.ok()) return Fail(keys.status());
  const std::string secret = options.out + ".key";
  const std::string open_file = options.out + ".pub";
  if (Status status = WriteKeyFile(secret, keys->secret_key, 0600, options.force); !status.ok()) {
    const bool exists = status.code() == StatusCode::kFailedPrecondition;
    return Fail(exists ? Status(status.code(), status.message() + "; --force replaces it")
                       : status);
  }
  if (Status status = WriteKeyFile(open_file, keys->public_key, 0644, /*replace=*/true);
      !status.ok()) {
    return Fail(status);
  }
  std::printf("%s\n", keys->public_key.c_str());
  return 0;
}

}  // namespace kvcast::tools
