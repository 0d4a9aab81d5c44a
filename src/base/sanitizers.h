// KVCAST_THREAD_SANITIZER: defined in a build with ThreadSanitizer, by g++ or clang.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SANITIZE_THREAD__)
#define KVCAST_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVCAST_THREAD_SANITIZER
#endif
#endif
