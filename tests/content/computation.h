// Computation: reads and writes the bytes of the pool as a step's forward pass does, and checks the
// bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/content/kv_memory.h"
#include "tests/content/run_config.h"

namespace kvcast::content {

// The work of one request in a step. The step computes the tokens [computed, end). In each group,
// the step reads all earlier tokens that the group does not skip.
struct RequestWork {
  std::string request_name;  // for messages
  int64_t computed = 0;
  int64_t end = 0;
  // By token, up to end: code of all tokens up to and including this token.
  std::vector<uint64_t> prefix;
  std::vector<std::vector<BlockId>> tables;  // by group
};

class Computation {
 public:
  // All arguments must outlive this object.
  Computation(const std::vector<GroupSpec>& groups, KvMemory& memory, Findings& findings,
              RunCounts& counts)
      : groups_(groups), memory_(memory), findings_(findings), counts_(counts) {}

  // Reads the states, writes all new states and tokens, then reads the tokens of attention. A
  // request may read tokens that another request of the same step has written.
  void Begin(const std::vector<RequestWork>& step);
  // Checks that the tokens that the step read or wrote are unchanged, and that the states that the
  // step wrote are unchanged. Does not check the states that the step read, because a step may
  // overwrite a state in place.
  void End(const std::vector<RequestWork>& step);

 private:
  void ReadState(const RequestWork& work, size_t group);
  void WriteStates(const RequestWork& work, size_t group);
  void CheckWrittenStates(const RequestWork& work, size_t group);
  void WriteTokens(const RequestWork& work, size_t group);
  void ReadTokens(const RequestWork& work, size_t group, int64_t end, int64_t& wrong);
  bool HoldsState(const RequestWork& work, size_t group, int64_t boundary);
  void RecordWrong(const RequestWork& work, size_t group, int64_t token, int64_t& count);
  BlockId BlockOf(const RequestWork& work, size_t group, int64_t token) const;

  const std::vector<GroupSpec>& groups_;
  KvMemory& memory_;
  Findings& findings_;
  RunCounts& counts_;
};

}  // namespace kvcast::content
