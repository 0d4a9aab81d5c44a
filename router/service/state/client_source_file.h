// ClientSourceFile: the sources that clients have registered over HTTP, in the state folder. A
// router that starts again follows these sources again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/ingest/fleet.h"
#include "router/service/state/state_folder.h"
#include "src/base/mutex.h"

namespace kvcast::router {

// Thread-safe.
class ClientSourceFile {
 public:
  // Returns the sources as a JSON text that SourcesFromText reads.
  using Encode = std::string (*)(const std::vector<WorkerRegistration>&);

  // `folder` must outlive this object.
  ClientSourceFile(const StateFolder& folder, Encode encode) : folder_(folder), encode_(encode) {}

  // Returns the text of the latest Write. Empty: there is no file. The error text is one line that
  // names the file.
  Result<std::string> Read() const;
  // Must be called if the result of Read cannot be used. The next Write renames the file to
  // `sources.json.refused`, and replaces an older file of this name.
  void Refuse();
  // Must be called for a source of the file that the fleet does not follow. Each Write writes the
  // source too, until a client registers a source with the same name.
  void Keep(const WorkerRegistration& source);
  // Drops the source of Keep with this name. False: there is none.
  bool Forget(std::string_view name);
  // Writes the sources that clients have registered in `fleet`, and the sources of Keep, to the
  // file.
  Status Write(const Fleet& fleet);

 private:
  const StateFolder& folder_;
  const Encode encode_;
  Mutex mutex_;  // held during Write, so that an older list never replaces a newer list
  bool refused_ KV_GUARDED_BY(mutex_) = false;  // the file is renamed before the next Write
  std::vector<WorkerRegistration> kept_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::router
