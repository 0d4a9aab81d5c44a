// Mutex: std::mutex with thread-safety annotations that clang checks (-Wthread-safety). CondVar:
// the condition variable of a Mutex. CondVar does not use std::condition_variable_any, because that
// class has a lock of its own. A woken thread would wait for that lock too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#if defined(__clang__)
#define KV_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define KV_THREAD_ANNOTATION(x)
#endif
#define KV_CAPABILITY(x) KV_THREAD_ANNOTATION(capability(x))
#define KV_SCOPED_CAPABILITY KV_THREAD_ANNOTATION(scoped_lockable)
#define KV_GUARDED_BY(x) KV_THREAD_ANNOTATION(guarded_by(x))
#define KV_REQUIRES(...) KV_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define KV_ACQUIRE(...) KV_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define KV_TRY_ACQUIRE(...) KV_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define KV_RELEASE(...) KV_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace kvcast {

class KV_CAPABILITY("mutex") Mutex {
 public:
  void lock() KV_ACQUIRE() { mutex_.lock(); }
  void unlock() KV_RELEASE() { mutex_.unlock(); }
  bool try_lock() KV_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

template <typename AnyMutex>
class KV_SCOPED_CAPABILITY ScopedLock {
 public:
  explicit ScopedLock(AnyMutex& mutex) KV_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~ScopedLock() KV_RELEASE() { mutex_.unlock(); }
  ScopedLock(const ScopedLock&) = delete;
  ScopedLock& operator=(const ScopedLock&) = delete;

 private:
  AnyMutex& mutex_;
};
using MutexLock = ScopedLock<Mutex>;

class CondVar {
 public:
  // Both waits may return without a notification, as in std::condition_variable.
  void Wait(Mutex& mutex) KV_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    signal_.wait(lock);
    lock.release();
  }
  // `steady_us`: a time on the clock of SteadyUs. False: this time was reached.
  bool WaitUntil(Mutex& mutex, int64_t steady_us) KV_REQUIRES(mutex) {
    const std::chrono::steady_clock::time_point time{std::chrono::microseconds(steady_us)};
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = signal_.wait_until(lock, time) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { signal_.notify_one(); }
  void NotifyAll() { signal_.notify_all(); }

 private:
  std::condition_variable signal_;
};

}  // namespace kvcast
