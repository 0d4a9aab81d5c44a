// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_fleet.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "apps/support/stop.h"

namespace kvcast::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kHelloDeadlineSeconds = 20;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string DescribeExit(int status) {
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  std::string program = "kvcast";
  argv.push_back(program.data());
  std::vector<std::string> copy = arguments;
  for (std::string& argument : copy) argv.push_back(argument.data());
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return Status(StatusCode::kUnavailable, std::string("fork: ") + std::strerror(errno));
  }
  if (pid == 0) {
    // The parent has threads, so only async-signal-safe calls are allowed here.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid));
}

ChildProcess::~ChildProcess() {
  if (HasExited(nullptr)) return;
  Signal(SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

bool ChildProcess::HasExited(std::string* description) {
  if (!exited_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
    exited_ = true;
    exit_description_ = DescribeExit(status);
  }
  if (description != nullptr) *description = exit_description_;
  return true;
}

void ChildProcess::Signal(int signal) {
  if (!exited_) kill(pid_, signal);
}

Result<std::unique_ptr<EngineFleet>> EngineFleet::Start(
    const std::vector<std::vector<std::string>>& arguments) {
  std::unique_ptr<EngineFleet> fleet(new EngineFleet());
  auto control = ControlServer::Create();
  if (!control.ok()) return control.status();
  fleet->control_ = std::move(control).value();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = "engine-" + std::to_string(i);
    std::vector<std::string> all = {"engine",
                                    "--name",
                                    name,
                                    "--control",
                                    fleet->control_->endpoint(),
                                    "--endpoint",
                                    "tcp://127.0.0.1:0",
                                    "--replay-endpoint",
                                    "tcp://127.0.0.1:0"};
    all.insert(all.end(), arguments[i].begin(), arguments[i].end());
    auto child = ChildProcess::Start(all);
    if (!child.ok()) return child.status();
    fleet->children_.push_back(std::move(child).value());
    fleet->engines_.push_back({name, {}, {}});
  }
  const Status ready = fleet->AwaitHello(kHelloDeadlineSeconds);
  if (!ready.ok()) return ready;
  return fleet;
}

Status EngineFleet::AwaitHello(double deadline_s) {
  const auto start = Clock::now();
  size_t ready = 0;
  while (ready < engines_.size()) {
    if (StopSignal() != 0) return {StatusCode::kUnavailable, "interrupted"};
    if (const Status alive = CheckAlive(); !alive.ok()) return alive;
    if (SecondsSince(start) > deadline_s) {
      return {StatusCode::kUnavailable, "engines did not start in time"};
    }
    const auto message = control_->Receive(50);
    if (!message) continue;
    const auto hello = nlohmann::json::parse(message->header, nullptr, false);
    if (!hello.is_object() || hello.value("type", "") != "hello") continue;
    for (EngineEndpoints& engine : engines_) {
      if (engine.name != message->peer || !engine.endpoint.empty()) continue;
      engine.endpoint = hello.value("endpoint", "");
      engine.replay_endpoint = hello.value("replay_endpoint", "");
      ++ready;
    }
  }
  return {};
}

Status EngineFleet::CheckAlive() {
  for (size_t i = 0; i < children_.size(); ++i) {
    std::string description;
    if (children_[i]->HasExited(&description)) {
      return {StatusCode::kUnavailable, engines_[i].name + " " + description};
    }
  }
  return {};
}

void EngineFleet::Stop(double deadline_s,
                       const std::function<void(const ControlMessage&)>& on_message) {
  const auto start = Clock::now();
  for (const EngineEndpoints& engine : engines_) {
    // An error is ignored: the engine has exited and needs no stop message.
    (void)control_->Send(engine.name, R"({"type":"stop"})");
  }
  const auto all_exited = [this] {
    bool all = true;
    for (const auto& child : children_) all = child->HasExited(nullptr) && all;
    return all;
  };
  bool exited = false;
  while (!exited && SecondsSince(start) < deadline_s) {
    exited = all_exited();  // before the last receive, so that no message is missed
    while (const auto message = control_->Receive(exited ? 0 : 20)) on_message(*message);
  }
  children_.clear();
}

}  // namespace kvcast::tools
