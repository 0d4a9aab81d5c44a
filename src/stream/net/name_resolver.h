// NameResolver: looks up the addresses of host names on threads of its own. libzmq would look the
// names up on its I/O thread, at each attempt to connect. All sockets of the process would wait for
// the lookup.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "kvcast/core/status.h"

namespace kvcast::stream {

// One lookup. Thread-safe.
class NameLookup {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  // A numeric address. Empty: no address was found, or the lookup failed. REQUIRES: done().
  const std::string& address() const { return address_; }

 private:
  friend class NameResolver;
  std::string address_;
  std::atomic<bool> done_{false};
};

// Thread-safe. If a lookup is in progress, the destructor does not wait for it.
class NameResolver {
 public:
  // Maximum number of lookups at the same time. Further lookups wait.
  static constexpr size_t kMaxThreads = 16;
  // Returns a numeric address of the name, or an empty text. The function may block.
  using Function = std::function<std::string(const std::string& name)>;

  // `function` empty: the system's resolver is used. `function` may be called on any thread, also
  // after the destructor of the resolver.
  explicit NameResolver(Function function);
  ~NameResolver();

  // If no thread runs and none can start, the returned lookup is done and has no address.
  std::shared_ptr<const NameLookup> Begin(const std::string& name);

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace kvcast::stream
