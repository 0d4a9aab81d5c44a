// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_keys.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/support/key_file.h"
#include "kvcast/stream/curve.h"

namespace kvcast::tools {

Result<std::unique_ptr<DemoKeys>> DemoKeys::Create() {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  if (error) return Status(StatusCode::kUnavailable, "folder for keys: " + error.message());
  std::string folder = parent / "kvcast-demo-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return Status(StatusCode::kUnavailable, folder + ": " + std::strerror(errno));
  }
  std::unique_ptr<DemoKeys> keys(new DemoKeys(std::move(folder)));
  if (const Status written = keys->WriteFiles(); !written.ok()) return written;
  return keys;
}

DemoKeys::~DemoKeys() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Status DemoKeys::WriteFiles() {
  const auto engines = CurveKeyPair::Generate();
  const auto router = CurveKeyPair::Generate();
  if (!engines.ok()) return engines.status();
  if (!router.ok()) return router.status();
  engine_public_key_ = engines->public_key;
  constexpr mode_t kPrivate = 0600;
  const auto write = [&](const std::string& name, const std::string& text) {
    return WriteKeyFile(folder_ + "/" + name, text, kPrivate, /*replace=*/false);
  };
  Status status = write("engine.key", engines->secret_key);
  if (status.ok()) status = write("router.key", router->secret_key);
  if (status.ok()) {
    status = write("clients", "subscribe,replay,snapshot " + router->public_key + " router");
  }
  return status;
}

std::vector<std::string> DemoKeys::EngineFlags() const {
  return {"--curve-key", folder_ + "/engine.key", "--curve-clients", folder_ + "/clients"};
}

}  // namespace kvcast::tools
