// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <utility>

#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/holder.h"
#include "python/src/json_value.h"
#include "python/src/overlap_scores.h"
#include "python/src/query_arguments.h"
#include "router/service/config_json.h"
#include "router/service/route/decision_json.h"
#include "router/service/router_service.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

using router::RouterService;

constexpr size_t kMaxConfigBytes = 16 << 20;

// Returns the text of a configuration. `config` is a dict, the text, or the path of a file.
std::string ConfigTextOf(const py::object& config) {
  std::string text;
  if (PyDict_Check(config.ptr())) {
    text = ToJsonText(config);
  } else if (PyUnicode_Check(config.ptr())) {
    text = config.cast<std::string>();
  } else if (py::hasattr(config, "__fspath__")) {
    const py::object path = py::module_::import("pathlib").attr("Path")(config);
    text = path.attr("read_text")(py::arg("encoding") = "utf-8").cast<std::string>();
  } else {
    ThrowType("config: must be a dict, a JSON text (str) or a path");
  }
  if (text.size() > kMaxConfigBytes) ThrowInvalid("config: longer than 16 MiB");
  return text;
}

struct RouteOptions {
  std::string request_id;
  std::optional<double> temperature;
  std::optional<double> ttft_slo_ms;
  bool book = true;

  void CopyTo(router::Query& query) const {
    const auto in_range = [](std::optional<double> value, double most) {
      return !value || (*value >= 0 && *value <= most);
    };
    if (!in_range(temperature, router::kMaxTemperature)) {
      ThrowInvalid("temperature: must be from 0 to 100");
    }
    if (!in_range(ttft_slo_ms, router::kMaxTtftSloMs)) {
      ThrowInvalid("ttft_slo_ms: must be from 0 to 1e9");
    }
    CheckText("request_id", request_id);
    query.request_id = request_id;
    query.temperature = temperature;
    query.ttft_slo_ms = ttft_slo_ms;
    query.book = book;
  }
};

py::dict ReportDict(const router::WorkerReport& report) {
  py::dict dict;
  dict["name"] = report.name;
  dict["state"] = std::string(SourceStateName(report.state));
  dict["reason"] = std::string(SourceReasonName(report.stream.reason));
  dict["next_seq"] = report.stream.next_seq;
  dict["lag"] = report.stream.lag;
  dict["batches"] = report.stream.batches;
  dict["gaps"] = report.stream.gaps;
  dict["lost"] = report.stream.lost;
  dict["scheme"] = std::string(SchemeStateName(report.scheme.state));
  return dict;
}

// The class Router.
class Router {
 public:
  explicit Router(const router::RouterOptions& options)
      : holder_("Router", Take(WithoutGil([&] { return RouterService::Start(options); }))) {}

  OverlapScores Find(const QueryArguments& arguments) {
    auto answers =
        Take(holder_.Call([&](RouterService& service) { return service.Ask(arguments.query()); }));
    std::vector<router::QueryAnswer> query_answers;
    std::vector<std::shared_ptr<const OverlapScores::Key>> keys;
    for (router::WorkerAnswer& answer : answers) {
      keys.push_back(std::make_shared<const OverlapScores::Key>(std::move(answer.instance),
                                                                answer.data_parallel_rank));
      query_answers.push_back(std::move(answer.answer));
    }
    return OverlapScores(std::move(query_answers), std::move(keys), 0);
  }
  py::object Route(const QueryArguments& arguments, const RouteOptions& options) {
    router::Query query = arguments.Own();
    options.CopyTo(query);
    const auto text = Take(holder_.Call([&](RouterService& service) -> Result<std::string> {
      const auto decision = service.Route(query);
      if (!decision.ok()) return decision.status();
      return router::RenderDecision(*decision);
    }));
    return FromJsonText(text);
  }
  void Feedback(const py::kwargs& members) {
    const auto feedback = Take(router::ParseFeedback(ToJsonText(members)));
    Check(holder_.Call([&](RouterService& service) { return service.TakeFeedback(feedback); }));
  }
  py::list Workers() {
    py::list list;
    for (const auto& report : holder_.Call([](RouterService& s) { return s.workers(); })) {
      list.append(ReportDict(report));
    }
    return list;
  }
  int http_port() {
    return holder_.Call([](RouterService& service) { return service.http_port(); });
  }
  int admin_port() {
    return holder_.Call([](RouterService& service) { return service.admin_port(); });
  }
  std::string relay_endpoint() {
    return holder_.Call([](RouterService& service) { return service.relay_endpoint(); });
  }
  void Close() { holder_.Close(); }
  bool closed() { return holder_.closed(); }

 private:
  Holder<RouterService> holder_;
};

std::unique_ptr<Router> Open(const py::object& config) {
  const std::string text = ConfigTextOf(config);
  router::RouterOptions options;
  Check(router::ReadConfig(text, options));
  return std::make_unique<Router>(options);
}

OverlapScores FindMatches(Router& router, const py::object& hashes, const py::object& token_ids,
                          const std::string& model, const std::string& lora_name,
                          const std::string& lora_path, const std::string& cache_salt,
                          const py::object& mm_items, int64_t hash_block_size,
                          int64_t prompt_tokens, const py::object& workers) {
  return router.Find({hashes, token_ids, model, lora_name, lora_path, cache_salt, mm_items,
                      hash_block_size, prompt_tokens, workers});
}

py::object RouteRequest(Router& router, const py::object& token_ids, const py::object& hashes,
                        const std::string& model, const std::string& lora_name,
                        const std::string& lora_path, const std::string& cache_salt,
                        const py::object& mm_items, const py::object& workers,
                        const std::string& request_id, std::optional<double> temperature,
                        std::optional<double> ttft_slo_ms, bool book) {
  return router.Route(
      {hashes, token_ids, model, lora_name, lora_path, cache_salt, mm_items, 0, 0, workers},
      {request_id, temperature, ttft_slo_ms, book});
}

constexpr char kOpenDoc[] =
    R"(Start the router service in this process, and return a Router.

config: a dict with the members of the router's configuration file (docs/options.md: sources, http,
    weights, ...), the same as a JSON text (str), or the path of such a file (os.PathLike). Without
    the member "http", the service listens on 127.0.0.1 and a free port.

Raises InvalidArgumentError for a wrong member, UnavailableError for an address in use, TypeError
for another type, and OSError if the file cannot be read. The service has threads of its own: do not
use it in a child process after a fork.)";

constexpr char kRouteDoc[] =
    R"(Choose a worker for a prompt, like POST /v1/route.

token_ids, hashes, model, lora_name, lora_path, cache_salt, mm_items, workers: as in find_matches.
request_id: names the request in feedback; "": the service chooses one.
temperature, ttft_slo_ms: None: the defaults of the service. book: False adds no load.

Returns a dict as /openapi.json describes it: worker, request_id, reason, candidates, ... Raises
UnavailableError if no worker can be chosen, and the errors of find_matches.)";

constexpr char kFeedbackDoc[] =
    R"(Report about a routed request or a worker, like POST /v1/feedback.

Keyword arguments: request_id and event="admitted" with reused_tokens (and next_seq), or
event="first_token" or "finished"; or worker, event="load" and queued_requests.
Raises InvalidArgumentError for a wrong member, and NotFoundError for an unknown request or worker.)";

}  // namespace

void AddRouter(py::module_& module) {
  module.def("open_router", &Open, py::arg("config"), kOpenDoc);
  py::class_<Router>(module, "Router",
                     "The router service in this process; see open_router. Thread-safe. Every "
                     "method but close raises ClosedError after close.")
      .def("find_matches", &FindMatches, py::arg("hashes") = py::none(), py::kw_only(),
           py::arg("token_ids") = py::none(), py::arg("model") = "", py::arg("lora_name") = "",
           py::arg("lora_path") = "", py::arg("cache_salt") = "", py::arg("mm_items") = py::tuple(),
           py::arg("hash_block_size") = 0, py::arg("prompt_tokens") = 0,
           py::arg("workers") = py::none(),
           "Return the OverlapScores of a prompt, like POST /v1/query. The arguments are those of "
           "KvIndexer.find_matches; workers are names of sources.")
      .def("route", &RouteRequest, py::arg("token_ids") = py::none(), py::kw_only(),
           py::arg("hashes") = py::none(), py::arg("model") = "", py::arg("lora_name") = "",
           py::arg("lora_path") = "", py::arg("cache_salt") = "", py::arg("mm_items") = py::tuple(),
           py::arg("workers") = py::none(), py::arg("request_id") = "",
           py::arg("temperature") = py::none(), py::arg("ttft_slo_ms") = py::none(),
           py::arg("book") = true, kRouteDoc)
      .def("feedback", &Router::Feedback, kFeedbackDoc)
      .def("workers", &Router::Workers,
           "Return a dict for each worker: name, state, reason, next_seq, lag, batches, gaps, "
           "lost, scheme.")
      .def_property_readonly("http_port", &Router::http_port, "The port of the HTTP API.")
      .def_property_readonly("admin_port", &Router::admin_port,
                             "The port of the admin address (admin_listen); 0: none.")
      .def_property_readonly("relay_endpoint", &Router::relay_endpoint,
                             "The endpoint of the relay; \"\": none.")
      .def_property_readonly("closed", &Router::closed)
      .def("close", &Router::Close,
           "Complete the requests in progress, and end all threads. A second call has no effect.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Router& self, const py::args&) { self.Close(); });
}

}  // namespace kvcast::python
