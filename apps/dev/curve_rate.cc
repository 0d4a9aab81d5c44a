// SPDX-License-Identifier: Apache-2.0
#include "apps/dev/curve_rate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "apps/support/file.h"
#include "kvcast/stream/publisher.h"
#include "kvcast/stream/subscriber.h"

namespace kvcast::tools {
namespace {

constexpr int kRounds = 5;
constexpr size_t kBytesPerRound = 64 << 20;
// Maximum number of batches that are published and not yet applied. The publisher's ring holds more
// batches, so no batch is dropped.
constexpr uint64_t kWindow = 512;

struct Keys {
  CurveServer server;
  CurveKeyPair client;
};

Result<Keys> MakeKeys() {
  auto server = CurveKeyPair::Generate();
  if (!server.ok()) return server.status();
  auto client = CurveKeyPair::Generate();
  if (!client.ok()) return client.status();
  std::string path = "/tmp/kvcast-clients-XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) return Status(StatusCode::kUnavailable, "cannot create a file in /tmp");
  close(fd);
  const Status written = WriteFile(path, "subscribe,replay,snapshot " + client->public_key + "\n");
  auto clients =
      written.ok() ? AccessList::Load(path) : Result<std::shared_ptr<AccessList>>(written);
  unlink(path.c_str());
  if (!clients.ok()) return clients.status();
  return Keys{{*server, std::move(clients).value()}, *client};
}

// Batches per second.
Result<double> MeasureOnce(size_t payload_bytes, const Keys* keys) {
  PublisherConfig config;
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = "tcp://127.0.0.1:0";
  config.extension = false;
  config.heartbeat_ms = 0;
  SubscriberConfig following;
  if (keys != nullptr) {
    config.curve = keys->server;
    following.curve_keys = keys->client;
  }
  auto publisher = Publisher::Create(config);
  if (!publisher.ok()) return publisher.status();
  auto subscriber = Subscriber::Create(following);
  if (!subscriber.ok()) return subscriber.status();
  std::atomic<uint64_t> applied{0};
  auto sink = std::make_shared<BatchSink>([&](Seq, std::span<const uint8_t>) {
    ++applied;
    applied.notify_one();
  });
  const std::string server_key = keys == nullptr ? "" : keys->server.keys.public_key;
  const Status added =
      (*subscriber)
          ->Add({WorkerId(0), (*publisher)->endpoint(), (*publisher)->replay_endpoint(), "",
                 /*bind=*/false, server_key},
                sink);
  if (!added.ok()) return added;
  const std::vector<uint8_t> payload(payload_bytes, 1);
  const uint64_t count = kBytesPerRound / payload_bytes;
  std::chrono::steady_clock::time_point begin;
  for (uint64_t sent = 0; sent < count; ++sent) {
    if (sent == 1) begin = std::chrono::steady_clock::now();  // the first batch has arrived
    if (auto seq = (*publisher)->PublishPayload(payload); !seq.ok()) return seq.status();
    const uint64_t wanted = sent == 0 ? 1 : sent < kWindow ? 0 : sent - kWindow;
    for (uint64_t done = applied; done < wanted; done = applied) applied.wait(done);
  }
  for (uint64_t done = applied; done < count; done = applied) applied.wait(done);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  (*subscriber)->Remove(WorkerId(0));
  return static_cast<double>(count - 1) / took.count();
}

double Median(std::array<double, kRounds> values) {
  std::sort(values.begin(), values.end());
  return values[kRounds / 2];
}

}  // namespace

Result<std::vector<CurveRate>> MeasureCurveRates() {
  const Result<Keys> keys = MakeKeys();
  if (!keys.ok()) return keys.status();
  std::vector<CurveRate> rates;
  for (const size_t bytes : {size_t{2000}, size_t{16000}}) {
    std::array<double, kRounds> plain{};
    std::array<double, kRounds> curve{};
    for (int round = 0; round < kRounds; ++round) {
      for (const bool secure : {false, true}) {
        const auto rate = MeasureOnce(bytes, secure ? &*keys : nullptr);
        if (!rate.ok()) return rate.status();
        (secure ? curve : plain)[static_cast<size_t>(round)] = *rate;
      }
    }
    rates.push_back({bytes, Median(plain), Median(curve)});
  }
  return rates;
}

}  // namespace kvcast::tools
