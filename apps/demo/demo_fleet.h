// EngineFleet: the engine processes of a demo run, from their start until all have exited.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/engine/control_channel.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

// One child process that runs the same program. The destructor kills the child. If this process
// ends first, the kernel kills the child.
class ChildProcess {
 public:
  static Result<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // True if the process has ended. Then `description` describes the end ("ended with exit code 1",
  // "killed by signal 9"). `description` may be nullptr.
  bool HasExited(std::string* description);
  void Signal(int signal);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  bool exited_ = false;
  std::string exit_description_;
};

struct EngineEndpoints {
  std::string name;
  std::string endpoint;
  std::string replay_endpoint;
};

class EngineFleet {
 public:
  // Starts one engine ("engine-0" ...) for each element of `arguments`, and waits for the hello
  // message of each engine. The arguments are flags of `kvcast engine`. Start adds --name,
  // --control and the endpoints.
  static Result<std::unique_ptr<EngineFleet>> Start(
      const std::vector<std::vector<std::string>>& arguments);

  const std::vector<EngineEndpoints>& engines() const { return engines_; }
  ControlServer& control() { return *control_; }
  pid_t pid(size_t engine) const { return children_[engine]->pid(); }

  // Not ok: an engine process ended; the message names the engine and describes the end.
  Status CheckAlive();
  // Sends a stop message to all engines, and waits up to `deadline_s` for their exit. `on_message`
  // gets the messages that arrive meanwhile. An engine that has not ended at the deadline is
  // killed.
  void Stop(double deadline_s, const std::function<void(const ControlMessage&)>& on_message);

 private:
  EngineFleet() = default;
  Status AwaitHello(double deadline_s);

  std::unique_ptr<ControlServer> control_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::vector<EngineEndpoints> engines_;
};

}  // namespace kvcast::tools
