// KV_CHECK: invariants of our own code, always on. KV_DCHECK: the costly ones, debug builds only.
// Never for input from outside: that gets a Status or a counted reject.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcast::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);
}  // namespace kvcast::internal

#define KV_CHECK(expression) \
  ((expression) ? (void)0 : ::kvcast::internal::CheckFailed(__FILE__, __LINE__, #expression))

#ifdef NDEBUG
#define KV_DCHECK(expression) (true ? (void)0 : KV_CHECK(expression))
#else
#define KV_DCHECK(expression) KV_CHECK(expression)
#endif
