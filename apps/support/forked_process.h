// A child process that is a copy of this process, with a pipe in each direction. Benchmarks use a
// child for a part that must have its own heap, or its own share of the CPU time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "kvcast/core/status.h"

namespace kvcast::tools {

// Maximum time for which one process waits for a message of the other process.
inline constexpr int kPipeTimeoutMs = 60'000;

// One end of a pipe. The destructor closes it.
class PipeEnd {
 public:
  explicit PipeEnd(int descriptor) : descriptor_(descriptor) {}
  PipeEnd(const PipeEnd&) = delete;
  PipeEnd& operator=(const PipeEnd&) = delete;
  ~PipeEnd();

  // False: the other end is closed. Read also returns false if no byte arrives for `timeout_ms`.
  bool Write(const void* data, size_t bytes) const;
  bool Read(void* data, size_t bytes, int timeout_ms) const;
  template <typename T>
  bool Put(const T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return Write(&value, sizeof(value));
  }
  template <typename T>
  bool Get(T& value, int timeout_ms) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return Read(&value, sizeof(value), timeout_ms);
  }
  // True: data can be read, or the other end is closed.
  bool Ready() const;

 private:
  const int descriptor_;
};

class ForkedProcess {
 public:
  // The result of `run` is the child's exit code. This process must have only one thread when Start
  // is called. The child is killed when this process or this object ends. Start ignores SIGPIPE in
  // both processes.
  static Result<std::unique_ptr<ForkedProcess>> Start(
      const std::function<int(const PipeEnd& in, const PipeEnd& out)>& run);
  ~ForkedProcess();

  const PipeEnd& to() const { return *to_; }
  const PipeEnd& from() const { return *from_; }
  // The CPU time of the child so far, in seconds; 0 if /proc does not contain the child.
  double CpuSeconds() const;
  double ResidentMiB() const;

 private:
  ForkedProcess(pid_t pid, int to, int from);

  const pid_t pid_;
  std::unique_ptr<PipeEnd> to_;
  std::unique_ptr<PipeEnd> from_;
};

}  // namespace kvcast::tools
