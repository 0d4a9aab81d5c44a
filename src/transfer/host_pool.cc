// SPDX-License-Identifier: Apache-2.0
#include "kvcast/transfer/host_pool.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/huge_pages.h"

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

namespace kvcast {
namespace {

// Without a size, MAP_HUGETLB means the default size of the machine, which may be 1 GiB.
constexpr int kHugePageFlags = MAP_HUGETLB | std::countr_zero(kHugePageBytes) << MAP_HUGE_SHIFT;
constexpr int kMaxPopulateThreads = 256;
constexpr int kMaxNumaNodes = 1024;
// Number of bytes that a thread touches in one step.
constexpr size_t kPopulateBytes = size_t{64} << 20;

Status Invalid(const char* message) { return {StatusCode::kInvalidArgument, message}; }
Status Exhausted(const std::string& resource, int error) {
  return {StatusCode::kExhausted, resource + ": " + std::strerror(error)};
}

// Unmaps the bytes before the first multiple of `page`, and bytes at the end of the mapping. In
// total, `page` bytes are unmapped. Returns the first multiple of `page`.
std::byte* Trim(std::byte* mapping, size_t bytes, size_t page) {
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  const size_t head = (page - address % page) % page;
  if (head > 0) munmap(mapping, head);
  munmap(mapping + bytes - (page - head), page - head);
  return mapping + head;
}

// A direct system call: libnuma would be a dependency of every program that links the library.
bool BindToNode(void* memory, size_t bytes, int node) {
#ifdef SYS_mbind
  constexpr int kBind = 2;  // MPOL_BIND
  constexpr int kBitsOfWord = 8 * sizeof(unsigned long);
  unsigned long nodes[kMaxNumaNodes / kBitsOfWord] = {};
  nodes[node / kBitsOfWord] = 1ul << (node % kBitsOfWord);
  return syscall(SYS_mbind, memory, bytes, kBind, nodes, kMaxNumaNodes + 1, 0) == 0;
#else
  errno = ENOSYS;
  return false;
#endif
}

// Returns 0, or errno.
int Populate(std::byte* memory, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;  // EINVAL: a kernel before 5.14
#endif
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t offset = 0; offset < bytes; offset += page)
    *static_cast<volatile std::byte*>(memory + offset) = {};
  return 0;
}

int PopulateInParallel(std::byte* memory, size_t bytes, int threads) {
  std::atomic<size_t> next = 0;
  std::atomic<int> error = 0;
  const auto work = [&] {
    for (size_t offset; error == 0 && (offset = next.fetch_add(kPopulateBytes)) < bytes;) {
      const int failed = Populate(memory + offset, std::min(kPopulateBytes, bytes - offset));
      if (failed != 0) error = failed;
    }
  };
  std::vector<std::thread> others;
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads can start. The threads so far do all the work.
  }
  work();
  for (std::thread& thread : others) thread.join();
  return error;
}

}  // namespace

Result<HostPool> HostPool::Create(const HostPoolConfig& config) {
  if (config.bytes == 0) return Invalid("bytes: must be positive");
  if (config.threads < 0 || config.threads > kMaxPopulateThreads) {
    return Invalid("threads: must be in 0..256");
  }
  if (config.numa_node && (*config.numa_node < 0 || *config.numa_node >= kMaxNumaNodes)) {
    return Invalid("numa_node: must be in 0..1023");
  }
  const size_t page = config.pages == HostPages::kSmall ? static_cast<size_t>(sysconf(_SC_PAGESIZE))
                                                        : kHugePageBytes;
  if (config.bytes > SIZE_MAX - 2 * page) return Invalid("bytes: is too large");
  const size_t mapped = (config.bytes + page - 1) / page * page;
  // The kernel aligns a mapping of reserved huge pages. Every other mapping has one extra page, so
  // that the pool can begin at a multiple of the page size.
  const size_t extra = config.pages == HostPages::kHuge ? 0 : page;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (extra == 0 ? kHugePageFlags : 0);
  void* const mapping = mmap(nullptr, mapped + extra, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapping == MAP_FAILED) return Exhausted("mmap of the host pool", errno);
  auto* memory = static_cast<std::byte*>(mapping);
  if (extra > 0) memory = Trim(memory, mapped + extra, page);
  HostPool pool(memory, config.bytes, mapped);
  if (config.numa_node && !BindToNode(memory, mapped, *config.numa_node)) {
    return Exhausted("memory of NUMA node " + std::to_string(*config.numa_node), errno);
  }
  if (config.pages == HostPages::kTransparentHuge) AdviseHugePages(memory, mapped);
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = config.threads > 0 ? config.threads : std::clamp(processors / 2, 1, 16);
  if (const int error = PopulateInParallel(pool.base_, mapped, threads); error != 0) {
    return Exhausted("pages of the host pool", error);
  }
  return pool;
}

HostPool::~HostPool() {
  if (base_ != nullptr) munmap(base_, mapped_);
}

HostPool::HostPool(HostPool&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), mapped_(other.mapped_) {}

HostPool& HostPool::operator=(HostPool&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

}  // namespace kvcast
