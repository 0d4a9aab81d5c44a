// KVCAST_THREAD_SANITIZER: defined in a build with ThreadSanitizer, by g++ or clang.
// KVCAST_ADDRESS_SANITIZER: defined in a build with AddressSanitizer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SANITIZE_THREAD__)
#define KVCAST_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVCAST_THREAD_SANITIZER
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define KVCAST_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVCAST_ADDRESS_SANITIZER
#endif
#endif

namespace kvcast {

// True: a sanitizer makes the code several times slower. Tests with random input then run fewer
// rounds.
#if defined(KVCAST_THREAD_SANITIZER) || defined(KVCAST_ADDRESS_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace kvcast
