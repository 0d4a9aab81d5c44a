// A seed lets a client compute the hashes of guessed prompts. So a reply may contain only
// well-known seeds.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <string>

#include "kvcast/stream/publisher.h"
#include "router/service/json/json_fields.h"
#include "router/service/router_service.h"
#include "tests/router/names/scheme_streams.h"
#include "tests/support/index_events.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::DenseStore;
using kvcast::testing::EngineScheme;
using kvcast::testing::Registered;
using kvcast::testing::SchemeTokens;

std::unique_ptr<Publisher> PublisherOf(const EngineScheme& scheme) {
  PublisherConfig config;
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = "tcp://127.0.0.1:0";
  auto publisher = Publisher::Create(config).value();
  EXPECT_TRUE(publisher->Publish(Batch(DenseStore(scheme, SchemeTokens(96, 1), 0, 3, 32))).ok());
  return publisher;
}

WorkerRegistration RegistrationFor(const std::string& name, const Publisher& publisher,
                                   const std::string& seed) {
  WorkerRegistration source;
  source.endpoint = publisher.endpoint();
  source.replay_endpoint = publisher.replay_endpoint();
  source.worker = Registered({});
  source.worker.name = name;
  source.hash_seed = seed;
  source.candidate_seeds = {"s3cret-candidate", "42"};
  source.none_hash = {};
  return source;
}

TEST(HiddenSeeds, AreInNoReply) {
  const auto right = PublisherOf({.seed = "s3cret-right"});
  const auto wrong = PublisherOf({.seed = "s3cret-candidate"});
  const auto known = PublisherOf({.seed = "0"});
  RouterOptions options;
  options.sources = {RegistrationFor("right", *right, "s3cret-right"),
                     RegistrationFor("wrong", *wrong, "s3cret-wrong"),
                     RegistrationFor("known", *known, "0")};
  options.sources[2].candidate_none_hashes = {{0xab, 0xcd}};
  const auto service = RouterService::Start(options).value();
  httplib::Client client("127.0.0.1", service->http_port());
  client.set_read_timeout(60);
  const auto post = [&](const std::string& path, const Json& body) {
    return client.Post(path, body.dump(), "application/json")->body;
  };
  Json answers;
  ASSERT_TRUE(stream::Eventually([&] {
    answers = Json::parse(post("/v1/query", {{"tokens", {1, 2, 3}}})).at("workers");
    return answers[0]["scheme"]["state"] == "matched" &&
           answers[1]["scheme"]["state"] == "mismatch" &&
           answers[2]["scheme"]["state"] == "matched";
  })) << answers.dump();
  // A reply shows the text "configured" instead of a seed that is not well known.
  EXPECT_EQ(answers[0]["scheme"]["seed"], "configured");
  EXPECT_EQ(answers[2]["scheme"]["seed"], "0");
  EXPECT_NE(answers[1]["scheme"]["reason"].get<std::string>().find("seed configured"),
            std::string::npos);
  const Json sources = Json::parse(client.Get("/v1/sources")->body).at("sources");
  EXPECT_EQ(sources[0]["hash_seed"], "configured");
  EXPECT_EQ(sources[0]["candidate_seeds"], Json({"configured", "42"}));
  EXPECT_EQ(sources[2]["hash_seed"], "0");
  EXPECT_FALSE(sources[2].contains("candidate_none_hashes"));
  const std::string replies[] = {
      answers.dump(),
      sources.dump(),
      post("/v1/route", {{"tokens", {1, 2, 3}}}),
      post("/v1/sources",
           {{"name", "more"}, {"endpoint", "tcp://127.0.0.1:9"}, {"hash_seed", "s3cret"}}),
      client.Get("/v1/state")->body,
      client.Get("/v1/decisions")->body,
      client.Get("/metrics")->body,
      client.Get("/workers")->body};
  for (const std::string& reply : replies) {
    EXPECT_FALSE(reply.empty());
    EXPECT_EQ(reply.find("s3cret"), std::string::npos) << reply;
  }
}

}  // namespace
}  // namespace kvcast::router
