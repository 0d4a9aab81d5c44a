// With 0 to 63 free file descriptors, the creation of a publisher or subscriber succeeds or returns
// an error. A subscriber that was created follows its publisher when descriptors are free again.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kvcast/stream/publisher.h"
#include "kvcast/stream/subscriber.h"
#include "tests/fault/fault_test.h"

namespace kvcast::stream {
namespace {

// Limits the process to the open descriptors plus `more`.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(int more) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next + more);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

PublisherConfig Config() {
  PublisherConfig config;
  config.endpoint = config.replay_endpoint = "tcp://127.0.0.1:0";
  config.heartbeat_ms = 0;  // a heartbeat has a sequence number, and the tests count the batches
  return config;
}

TEST(Descriptors, APublisherIsCreatedOrUnavailable) {
  int created = 0;
  int refused = 0;
  for (int more = 0; more < 64; ++more) {
    const DescriptorLimit limit(more);
    const auto publisher = Publisher::Create(Config());
    ++(publisher.ok() ? created : refused);
    if (publisher.ok()) continue;
    EXPECT_EQ(publisher.status().code(), StatusCode::kUnavailable);
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(created, 10);
}

TEST(Descriptors, ASubscriberFollowsWhenDescriptorsAreFreeAgain) {
  auto publisher = Publisher::Create(Config()).value();
  ASSERT_TRUE(publisher->Publish(EventBatch()).ok());
  int followed = 0;
  int without_descriptor = 0;
  for (int more = 0; more < 64; ++more) {
    const WorkerId worker(static_cast<uint32_t>(more));
    std::unique_ptr<Subscriber> subscriber;
    {
      const DescriptorLimit limit(more);
      SubscriberConfig config;
      config.replay_timeout_ms = 20;
      auto created = Subscriber::Create(config);
      if (!created.ok()) continue;
      subscriber = std::move(created).value();
      const Status added =
          subscriber->Add({worker, publisher->endpoint(), publisher->replay_endpoint(), ""},
                          std::make_shared<BatchSink>(BatchSink::OnBatch()));
      if (!added.ok()) {
        EXPECT_EQ(added.code(), StatusCode::kUnavailable);
        continue;
      }
      // Either the replay is complete, or no descriptor was free for the request and the request
      // timed out.
      ASSERT_TRUE(Eventually([&] {
        const SourceStatus status = subscriber->status(worker);
        return status.next_seq == 1 || status.replay_timeouts > 0;
      })) << more;
      without_descriptor += subscriber->status(worker).next_seq == 0;
    }
    EXPECT_TRUE(Eventually([&] { return subscriber->status(worker).next_seq == 1; })) << more;
    ++followed;
  }
  EXPECT_GT(followed, 5);
  Figure("F16", "subscribers without a free descriptor for a request", without_descriptor, 4, "");
}

}  // namespace
}  // namespace kvcast::stream
