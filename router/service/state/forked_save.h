// ForkedSave: writes the state of a shard in a child process. The child has a copy of the memory as
// it was at the fork, so the router goes on while the child writes. The router waits only while
// the system copies the page tables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "kvcast/core/status.h"
#include "router/service/state/state_file.h"

namespace kvcast::router {

// Thread-compatible.
class ForkedSave {
 public:
  // Kills the child, if it still writes.
  ~ForkedSave();
  ForkedSave() = default;
  ForkedSave(const ForkedSave&) = delete;
  ForkedSave& operator=(const ForkedSave&) = delete;

  // Starts the child. `fd`: the file of the writer. REQUIRES: Begin was not called. If the process
  // has threads, the child may only do what StateFileWriter::Write does.
  void Begin(StateFileWriter& writer, const FrozenShard& frozen, int fd);
  // Waits until the child has written the file. Not ok (kUnavailable): one line with the reason.
  // REQUIRES: the process does not ignore SIGCHLD; otherwise the result of the child is lost, and
  // Wait is not ok.
  Status Wait();
  // Ends the child. Does not wait for its end.
  void Kill();

 private:
  pid_t child_ = 0;  // 0: none
  int error_ = 0;    // of fork
};

}  // namespace kvcast::router
