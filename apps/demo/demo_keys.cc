// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_keys.h"

#include <sys/types.h>

#include <utility>

#include "apps/support/key_file.h"
#include "kvcast/stream/curve.h"

namespace kvcast::tools {

Result<std::unique_ptr<DemoKeys>> DemoKeys::Create() {
  auto folder = TemporaryFolder::Create("kvcast-demo-");
  if (!folder.ok()) return folder.status();
  std::unique_ptr<DemoKeys> keys(new DemoKeys(std::move(folder).value()));
  if (const Status written = keys->WriteFiles(); !written.ok()) return written;
  return keys;
}

Status DemoKeys::WriteFiles() {
  const auto engines = CurveKeyPair::Generate();
  const auto router = CurveKeyPair::Generate();
  if (!engines.ok()) return engines.status();
  if (!router.ok()) return router.status();
  engine_public_key_ = engines->public_key;
  constexpr mode_t kPrivate = 0600;
  const auto write = [&](const std::string& name, const std::string& text) {
    return WriteKeyFile(folder_.path() + "/" + name, text, kPrivate, /*replace=*/false);
  };
  Status status = write("engine.key", engines->secret_key);
  if (status.ok()) status = write("router.key", router->secret_key);
  if (status.ok()) {
    status = write("clients", "subscribe,replay,snapshot " + router->public_key + " router");
  }
  return status;
}

std::vector<std::string> DemoKeys::EngineFlags() const {
  return {"--curve-key", folder_.path() + "/engine.key", "--curve-clients",
          folder_.path() + "/clients"};
}

}  // namespace kvcast::tools
