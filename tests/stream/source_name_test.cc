// Tests sources whose endpoint has a host name. No source waits for the name of another source.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "src/base/clock.h"
#include "src/stream/net/name_resolver.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

constexpr WorkerId kNamed(0);
constexpr WorkerId kNumeric(1);

// The addresses of names. A lookup waits while the names are blocked.
class Names {
 public:
  ~Names() { Block(false); }
  void Set(const std::string& name, const std::string& address) {
    std::lock_guard lock(state_->mutex);
    state_->addresses[name] = address;
  }
  void Block(bool blocked) {
    std::lock_guard lock(state_->mutex);
    state_->blocked = blocked;
    state_->changed.notify_all();
  }
  int lookups() const {
    std::lock_guard lock(state_->mutex);
    return state_->lookups;
  }
  std::function<std::string(const std::string&)> function() const {
    return [state = state_](const std::string& name) {
      std::unique_lock lock(state->mutex);
      ++state->lookups;
      state->changed.wait(lock, [&] { return !state->blocked; });
      return state->addresses[name];
    };
  }

 private:
  // A lookup may end later than the subscriber and this object.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::string> addresses;
    bool blocked = false;
    int lookups = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

std::string PortOf(const std::string& endpoint) { return endpoint.substr(endpoint.rfind(':')); }

struct NamedSource : ::testing::Test {
  NamedSource() {
    SubscriberConfig config;
    config.resolve = names.function();
    // The clock runs fifty times as fast, because a source waits for seconds before it looks up a
    // name again.
    config.now_ms = [] { return SteadyUs() / 20; };
    subscriber = Subscriber::Create(config).value();
  }
  Status Follow(const Publisher& publisher, WorkerId worker, const std::string& host) {
    return AddSource(*subscriber, sink,
                     {worker, "tcp://" + host + PortOf(publisher.endpoint()),
                      "tcp://" + host + PortOf(publisher.replay_endpoint()), ""});
  }
  SourceStatus status(WorkerId worker) const { return subscriber->status(worker); }

  Names names;
  RecordingSink sink;
  std::unique_ptr<Subscriber> subscriber;
};

// The system's resolver cannot resolve the names of these tests, so libzmq must never get a name.
TEST_F(NamedSource, FollowsTheAddressOfTheName) {
  names.Set("engine.test", "127.0.0.1");
  const auto publisher = MakePublisher(TestPublisherConfig());
  PublishUpTo(*publisher, 10);
  ASSERT_TRUE(Follow(*publisher, kNamed, "engine.test").ok());
  ASSERT_TRUE(sink.WaitFor(10));
  EXPECT_EQ(sink.deliveries(), Batches(0, 10));
}

TEST_F(NamedSource, ANameWithoutAnAnswerDelaysNoOtherSource) {
  names.Set("engine.test", "127.0.0.1");
  names.Block(true);
  const auto slow = MakePublisher(TestPublisherConfig());
  PublishUpTo(*slow, 10);
  ASSERT_TRUE(Follow(*slow, kNamed, "engine.test").ok());
  EXPECT_TRUE(Eventually([&] { return names.lookups() == 2; }));
  EXPECT_TRUE(Eventually([&] { return status(kNamed).reason == SourceReason::kUnresolved; }));
  EXPECT_EQ(SourceHint(status(kNamed)), "the host name has no known address");
  const auto other = MakePublisher(TestPublisherConfig());
  PublishUpTo(*other, 100);
  ASSERT_TRUE(Follow(*other, kNumeric, "127.0.0.1").ok());
  ASSERT_TRUE(Eventually([&] { return status(kNumeric).next_seq == 100; }));
  EXPECT_EQ(status(kNamed).state, SourceState::kConnecting);
  names.Block(false);
  EXPECT_TRUE(Eventually([&] { return status(kNamed).next_seq == 10; }));
}

TEST_F(NamedSource, ANameThatIsUnknownIsLookedUpAgain) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  PublishUpTo(*publisher, 10);
  ASSERT_TRUE(Follow(*publisher, kNamed, "engine.test").ok());
  EXPECT_TRUE(Eventually([&] { return names.lookups() > 6; }));
  EXPECT_EQ(status(kNamed).reason, SourceReason::kUnresolved);
  names.Set("engine.test", "127.0.0.1");
  EXPECT_TRUE(sink.WaitFor(10));
}

// An engine is started again on another node. Nothing listens at the old address.
TEST_F(NamedSource, FollowsTheNameToAnotherAddress) {
  names.Set("engine.test", "127.0.0.2");
  const auto publisher = MakePublisher(TestPublisherConfig());  // on 127.0.0.1
  PublishUpTo(*publisher, 10);
  ASSERT_TRUE(Follow(*publisher, kNamed, "engine.test").ok());
  EXPECT_TRUE(Eventually([&] { return names.lookups() > 2; }));
  EXPECT_EQ(sink.deliveries(), Texts());
  names.Set("engine.test", "127.0.0.1");
  EXPECT_TRUE(sink.WaitFor(10));
}

TEST(NameResolver, ManyNamesAreAllAnswered) {
  Names names;
  names.Set("a", "10.0.0.1");
  names.Block(true);
  std::vector<std::shared_ptr<const NameLookup>> lookups;
  {
    NameResolver resolver(names.function());
    for (int i = 0; i < 100; ++i) lookups.push_back(resolver.Begin("a"));
    EXPECT_TRUE(
        Eventually([&] { return names.lookups() == static_cast<int>(NameResolver::kMaxThreads); }));
    names.Block(false);
    for (const auto& lookup : lookups) {
      ASSERT_TRUE(Eventually([&] { return lookup->done(); }));
      EXPECT_EQ(lookup->address(), "10.0.0.1");
    }
  }
  EXPECT_EQ(names.lookups(), 100);
}

TEST(NameResolver, TheDestructorDoesNotWait) {
  Names names;
  names.Block(true);
  {
    NameResolver resolver(names.function());
    (void)resolver.Begin("a");
    ASSERT_TRUE(Eventually([&] { return names.lookups() == 1; }));
  }
  names.Block(false);
}

TEST(NameResolver, TheSystemResolvesLocalhost) {
  NameResolver resolver(nullptr);
  const auto local = resolver.Begin("localhost");
  ASSERT_TRUE(Eventually([&] { return local->done(); }));
  EXPECT_EQ(local->address(), "127.0.0.1");
}

}  // namespace
}  // namespace kvcast::stream
