// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/name_resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/mutex.h"

namespace kvcast::stream {
namespace {

// Returns the first IPv4 address, because libzmq prefers IPv4. If the name has no IPv4 address,
// returns the first address.
std::string SystemLookup(const std::string& name) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &addresses) != 0) return {};
  const addrinfo* chosen = addresses;
  for (const addrinfo* candidate = addresses; candidate != nullptr;
       candidate = candidate->ai_next) {
    if (candidate->ai_family != AF_INET) continue;
    chosen = candidate;
    break;
  }
  std::array<char, NI_MAXHOST> text;
  const int error = getnameinfo(chosen->ai_addr, chosen->ai_addrlen, text.data(), text.size(),
                                nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(addresses);
  return error == 0 ? text.data() : std::string();
}

}  // namespace

// The threads share the state, because a lookup may end after the resolver was destroyed.
struct NameResolver::State {
  struct Job {
    std::string name;
    std::shared_ptr<NameLookup> lookup;
  };
  Function function;
  Mutex mutex;
  std::deque<Job> jobs KV_GUARDED_BY(mutex);
  size_t threads KV_GUARDED_BY(mutex) = 0;
  bool stopping KV_GUARDED_BY(mutex) = false;
};

NameResolver::NameResolver(Function function) : state_(std::make_shared<State>()) {
  state_->function = function ? std::move(function) : SystemLookup;
}

NameResolver::~NameResolver() {
  MutexLock lock(state_->mutex);
  state_->stopping = true;
  state_->jobs.clear();
}

std::shared_ptr<const NameLookup> NameResolver::Begin(const std::string& name) {
  auto lookup = std::make_shared<NameLookup>();
  MutexLock lock(state_->mutex);
  state_->jobs.push_back({name, lookup});
  if (state_->threads == kMaxThreads) return lookup;
  try {
    std::thread([state = state_] { Run(state); }).detach();
    ++state_->threads;
  } catch (const std::system_error&) {
    if (state_->threads > 0) return lookup;
    state_->jobs.pop_back();
    lookup->done_ = true;
  }
  return lookup;
}

// A thread ends when no job waits.
void NameResolver::Run(const std::shared_ptr<State>& state) {
  while (true) {
    State::Job job;
    {
      MutexLock lock(state->mutex);
      if (state->jobs.empty()) {
        --state->threads;
        return;
      }
      job = std::move(state->jobs.front());
      state->jobs.pop_front();
    }
    job.lookup->address_ = state->function(job.name);
    job.lookup->done_.store(true, std::memory_order_release);
  }
}

}  // namespace kvcast::stream
