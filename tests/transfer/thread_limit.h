// ThreadLimit: a limit on the threads that the process can start.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace kvcast::testing {

// While the object exists, the process can start `threads` more threads, and then std::thread
// throws. The stack of a thread takes 1 GiB of address space, and the address space of the process
// can grow by `threads` GiB and 512 MiB. RLIMIT_NPROC does not limit root.
class ThreadLimit {
 public:
  explicit ThreadLimit(size_t threads) {
    EXPECT_EQ(pthread_getattr_default_np(&attributes_), 0);
    pthread_attr_t large;
    EXPECT_EQ(pthread_attr_init(&large), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&large, kStackBytes), 0);
    EXPECT_EQ(pthread_setattr_default_np(&large), 0);
    pthread_attr_destroy(&large);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(getrlimit(RLIMIT_AS, &memory_), 0);
    rlimit limit = memory_;
    limit.rlim_cur = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + threads * kStackBytes +
                     kStackBytes / 2;
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~ThreadLimit() {
    setrlimit(RLIMIT_AS, &memory_);
    pthread_setattr_default_np(&attributes_);
    pthread_attr_destroy(&attributes_);
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  static constexpr size_t kStackBytes = size_t{1} << 30;

  pthread_attr_t attributes_;
  rlimit memory_;
};

}  // namespace kvcast::testing
