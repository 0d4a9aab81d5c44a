// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/selector.h"

#include <pybind11/stl.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/src/bindings.h"
#include "python/src/errors.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

// A candidate, and the object that the caller uses for its worker.
struct NamedCandidate {
  py::object worker;
  Candidate parts;
};

struct NamedChoice {
  py::object worker;
  size_t index = 0;
  Choice choice;
};

double Seconds(const char* name, double value) {
  if (std::isfinite(value) && value >= 0) return value;
  ThrowInvalid(std::string(name) + ": must be finite and at least 0");
}

int64_t Tokens(const char* name, int64_t value) {
  if (value >= 0) return value;
  ThrowInvalid(std::string(name) + ": must be at least 0");
}

NamedCandidate MakeCandidate(py::object worker, int64_t reusable, int64_t speculative,
                             double queue_s, double compute_s, double load_s, double partial_s,
                             double eviction_s) {
  NamedCandidate made{.worker = std::move(worker), .parts = {}};
  made.parts.reusable_tokens = Tokens("reusable_tokens", reusable);
  made.parts.speculative_tokens = Tokens("speculative_tokens", speculative);
  made.parts.queue_s = Seconds("queue_s", queue_s);
  made.parts.compute_s = Seconds("compute_s", compute_s);
  made.parts.load_s = Seconds("load_s", load_s);
  made.parts.partial_s = Seconds("partial_s", partial_s);
  made.parts.eviction_s = Seconds("eviction_s", eviction_s);
  return made;
}

// The class Selector.
class NamedSelector {
 public:
  NamedSelector(double work, double later, double partial, double eviction) {
    weights_.work = Seconds("work", work);
    weights_.later = Seconds("later", later);
    weights_.partial = Seconds("partial", partial);
    weights_.eviction = Seconds("eviction", eviction);
  }

  double CostOf(const NamedCandidate& candidate, double delay) const {
    return Cost(candidate.parts, weights_, Seconds("delay", delay));
  }
  double FleetCostOf(const NamedCandidate& candidate, double delay) const {
    return FleetCost(candidate.parts, weights_, Seconds("delay", delay));
  }
  // nullopt: there is no candidate.
  std::optional<NamedChoice> Select(const py::iterable& candidates, double delay) const {
    Seconds("delay", delay);
    std::vector<Candidate> parts;
    std::vector<py::object> workers;
    for (const py::handle item : candidates) {
      if (!py::isinstance<NamedCandidate>(item)) {
        ThrowType("candidates[" + std::to_string(parts.size()) + "]: must be a Candidate");
      }
      const auto& candidate = item.cast<const NamedCandidate&>();
      parts.push_back(candidate.parts);
      parts.back().worker = WorkerId(static_cast<uint32_t>(workers.size()));
      workers.push_back(candidate.worker);
    }
    const auto choice = WithoutGil([&] { return SelectWorker(parts, weights_, delay); });
    if (!choice) return std::nullopt;
    return NamedChoice{workers[choice->worker.value], choice->worker.value, *choice};
  }

 private:
  CostWeights weights_;
};

constexpr char kSelectorDoc[] =
    R"(Chooses the worker that should serve a prompt: the one with the lowest cost, in seconds.

cost = queue_s + load_s + compute_s + work * compute_s
     + later * delay * compute_s * (2 * queue_s + compute_s)
     - partial * partial_s + eviction * eviction_s

work, later, partial, eviction: the weights; at least 0. Immutable. Thread-safe.
Raises InvalidArgumentError for a weight that is negative or not finite.)";

constexpr char kCandidateDoc[] =
    R"(One worker, as input of Selector. Immutable.

worker: any object that names it, for example the key (worker_id, dp_rank) of OverlapScores.
reusable_tokens: tokens of the prompt that it can reuse (OverlapScores.tokens).
speculative_tokens: tokens that it will soon be able to reuse.
queue_s: seconds until its present work is done. compute_s: seconds to compute the other tokens.
load_s: seconds to load tokens. partial_s: part of compute_s for tokens that some groups hold.
eviction_s: seconds to compute evicted tokens again.
Raises InvalidArgumentError for a value that is negative or not finite.)";

}  // namespace

void AddSelector(py::module_& module) {
  py::class_<NamedCandidate>(module, "Candidate", kCandidateDoc)
      .def(py::init(&MakeCandidate), py::arg("worker"), py::arg("reusable_tokens") = 0,
           py::kw_only(), py::arg("speculative_tokens") = 0, py::arg("queue_s") = 0.0,
           py::arg("compute_s") = 0.0, py::arg("load_s") = 0.0, py::arg("partial_s") = 0.0,
           py::arg("eviction_s") = 0.0)
      .def_readonly("worker", &NamedCandidate::worker)
      .def_property_readonly("reusable_tokens",
                             [](const NamedCandidate& c) { return c.parts.reusable_tokens; })
      .def_property_readonly("queue_s", [](const NamedCandidate& c) { return c.parts.queue_s; })
      .def_property_readonly("compute_s",
                             [](const NamedCandidate& c) { return c.parts.compute_s; });
  py::class_<NamedChoice>(module, "Choice", "The result of Selector.select. Immutable.")
      .def_readonly("worker", &NamedChoice::worker, "The worker of the candidate.")
      .def_readonly("index", &NamedChoice::index, "The position of the candidate.")
      .def_property_readonly(
          "cost", [](const NamedChoice& c) { return c.choice.cost; },
          "The cost of the candidate, in seconds.")
      .def_property_readonly("reusable_tokens",
                             [](const NamedChoice& c) { return c.choice.reusable_tokens; });
  const CostWeights defaults;
  py::class_<NamedSelector>(module, "Selector", kSelectorDoc)
      .def(py::init<double, double, double, double>(), py::kw_only(),
           py::arg("work") = defaults.work, py::arg("later") = defaults.later,
           py::arg("partial") = defaults.partial, py::arg("eviction") = defaults.eviction)
      .def("select", &NamedSelector::Select, py::arg("candidates"), py::arg("delay") = 0.0,
           R"(Return the Choice with the lowest cost, or None without candidates.

delay: arrivals / (2 * (1 - utilisation)), with the arrivals of one worker per second. Among equal
costs, more reusable tokens win, then the earlier candidate.)")
      .def("cost", &NamedSelector::CostOf, py::arg("candidate"), py::arg("delay") = 0.0,
           "Return the cost of a candidate in seconds.")
      .def("fleet_cost", &NamedSelector::FleetCostOf, py::arg("candidate"), py::arg("delay") = 0.0,
           "Return the cost without the prompt's own time to the first token.");
}

}  // namespace kvcast::python
