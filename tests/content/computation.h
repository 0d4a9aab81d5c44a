// Computation: what a step's forward pass does to the bytes of the pool, and what it needs of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/content/kv_memory.h"
#include "tests/content/run_config.h"

namespace kvcast::content {

// The part of one request: computes tokens [computed, end), which see all before them.
struct RequestWork {
  std::string who;  // for messages
  int64_t computed = 0;
  int64_t end = 0;
  std::vector<uint64_t> prefix;              // by token, up to end
  std::vector<std::vector<BlockId>> tables;  // by group
};

class Computation {
 public:
  // All must outlive this.
  Computation(const std::vector<GroupSpec>& groups, KvMemory& memory, Findings& findings,
              RunCounts& counts)
      : groups_(groups), memory_(memory), findings_(findings), counts_(counts) {}

  // States are read, all that is new is written, attention reads: also what others of the same step
  // have written.
  void Begin(const std::vector<RequestWork>& step);
  // What was read or written is still the same, but for states that were overwritten in place.
  void End(const std::vector<RequestWork>& step);

 private:
  void ReadState(const RequestWork& work, size_t group);
  void WriteStates(const RequestWork& work, size_t group);
  void CheckWrittenStates(const RequestWork& work, size_t group);
  void WriteTokens(const RequestWork& work, size_t group);
  void ReadTokens(const RequestWork& work, size_t group, int64_t end, int64_t& wrong);
  bool HoldsState(const RequestWork& work, size_t group, int64_t boundary);
  void Wrong(const RequestWork& work, size_t group, int64_t token, int64_t& count);
  BlockId BlockOf(const RequestWork& work, size_t group, int64_t token) const;

  const std::vector<GroupSpec>& groups_;
  KvMemory& memory_;
  Findings& findings_;
  RunCounts& counts_;
};

}  // namespace kvcast::content
