// KV_CHECK: checks an invariant of the code itself, in every build. KV_DCHECK: for costly checks,
// in debug builds only. The macros must not check input from outside: bad input gets a Status or a
// counted reject.
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
