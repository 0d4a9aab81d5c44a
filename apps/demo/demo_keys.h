// DemoKeys: the CURVE keys of one demo run. The engines share a key pair, and admit the router's
// key pair only.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/support/temporary_folder.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

// Owns a folder with the key files. The destructor removes the folder.
class DemoKeys {
 public:
  // Error: the folder or a file cannot be made.
  static Result<std::unique_ptr<DemoKeys>> Create();
  DemoKeys(const DemoKeys&) = delete;
  DemoKeys& operator=(const DemoKeys&) = delete;

  std::vector<std::string> EngineFlags() const;
  const std::string& engine_public_key() const { return engine_public_key_; }
  // The file with the router's secret key.
  std::string router_key_file() const { return folder_.path() + "/router.key"; }

 private:
  explicit DemoKeys(TemporaryFolder folder) : folder_(std::move(folder)) {}
  Status WriteFiles();

  const TemporaryFolder folder_;
  std::string engine_public_key_;
};

}  // namespace kvcast::tools
