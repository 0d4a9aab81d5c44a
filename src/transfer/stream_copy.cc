// SPDX-License-Identifier: Apache-2.0
#include "src/transfer/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "src/base/sanitizers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvcast::transfer {
namespace {

void PlainCopy(void* dst, const void* src, size_t bytes, const void*) {
  std::memcpy(dst, src, bytes);
}

#if defined(__x86_64__)

constexpr size_t kLine = 256;
// Distance of the prefetch ahead of the loads. The hardware prefetcher stops at every page
// boundary, and starts late at a new address.
constexpr size_t kAheadLines = 8;
static_assert(kAheadLines * kLine <= kStreamCopyFrom);

// Localities of __builtin_prefetch.
constexpr int kUsedOnce = 0;
constexpr int kUsedAgain = 3;

template <int kLocality>
[[gnu::always_inline]] inline void Prefetch(const char* line) {
  for (size_t offset = 0; offset < kLine; offset += 64)
    __builtin_prefetch(line + offset, 0, kLocality);
}

// Streams `lines` lines of kLine bytes to an aligned address, and prefetches the same number of
// lines from `prefetch` on.
using StreamLines = void (*)(char* to, const char* from, size_t lines, const char* prefetch);

void Sse2Lines(char* to, const char* from, size_t lines, const char* prefetch) {
  for (; lines > 0; --lines, to += kLine, from += kLine, prefetch += kLine) {
    Prefetch<kUsedOnce>(prefetch);
    for (int i = 0; i < 16; ++i) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, value);
    }
  }
}

__attribute__((target("avx2"))) void Avx2Lines(char* to, const char* from, size_t lines,
                                               const char* prefetch) {
  for (; lines > 0; --lines, to += kLine, from += kLine, prefetch += kLine) {
    Prefetch<kUsedOnce>(prefetch);
    for (int i = 0; i < 8; ++i) {
      const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + i);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to) + i, value);
    }
  }
}

__attribute__((target("avx512f"))) void Avx512Lines(char* to, const char* from, size_t lines,
                                                    const char* prefetch) {
  for (; lines > 0; --lines, to += kLine, from += kLine, prefetch += kLine) {
    Prefetch<kUsedOnce>(prefetch);
    for (int i = 0; i < 4; ++i) {
      const __m512i value = _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from) + i);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to) + i, value);
    }
  }
}

// Uses memcpy up to the first aligned byte, and after the last whole line.
template <StreamLines kLines>
void AlignedCopy(void* dst, const void* src, size_t bytes, const void* next_src) {
  constexpr size_t kAlignment = 64;
  auto* to = static_cast<char*>(dst);
  const auto* from = static_cast<const char*>(src);
  const auto* next = static_cast<const char*>(next_src);
  if (bytes < kStreamCopyFrom) return PlainCopy(to, from, bytes, nullptr);
  if (next != nullptr) Prefetch<kUsedAgain>(next);
  const size_t head = (kAlignment - reinterpret_cast<uintptr_t>(to) % kAlignment) % kAlignment;
  std::memcpy(to, from, head);
  const size_t lines = (bytes - head) / kLine;
  const size_t last = std::min(lines, kAheadLines);
  const size_t done = head + lines * kLine;
  const size_t last_offset = done - last * kLine;
  kLines(to + head, from + head, lines - last, from + head + kAheadLines * kLine);
  kLines(to + last_offset, from + last_offset, last, next != nullptr ? next : from + last_offset);
  std::memcpy(to + done, from + done, bytes - done);
}

#endif  // x86_64

}  // namespace

size_t StreamCopyVariants(StreamCopyVariant (&variants)[4]) {
  size_t count = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) variants[count++] = {"avx512", AlignedCopy<Avx512Lines>};
  if (__builtin_cpu_supports("avx2")) variants[count++] = {"avx2", AlignedCopy<Avx2Lines>};
  variants[count++] = {"sse2", AlignedCopy<Sse2Lines>};
#endif
  variants[count++] = {"memcpy", PlainCopy};
  return count;
}

StreamCopyVariant WidestStreamCopy() {
  static const StreamCopyVariant widest = [] {
    StreamCopyVariant variants[4];
    [[maybe_unused]] const size_t count = StreamCopyVariants(variants);
#if defined(KVCAST_THREAD_SANITIZER)
    return variants[count - 1];  // the variant that the sanitizer observes
#else
    return variants[0];
#endif
  }();
  return widest;
}

void StreamFence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace kvcast::transfer
