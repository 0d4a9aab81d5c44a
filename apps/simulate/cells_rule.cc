// A fleet in cells: the first level chooses a cell by a sketch of the cell's caches and by its
// load. In the cell, kvcast's own rule chooses the engine. kvcast's rule knows only the engines
// of the cell.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apps/simulate/rule_table.h"

namespace kvcast::simulate {
namespace {

// The engines of a cell have adjacent numbers. The sizes of two cells differ by at most one engine.
class RuleOfCells final : public Rule {
 public:
  RuleOfCells(const RuleParameters& p, const RuleFleet& fleet)
      : engines_(fleet.engines),
        cells_(std::clamp(static_cast<size_t>(p.at("cells")), size_t{1}, fleet.engines)),
        sketch_tokens_(static_cast<int64_t>(p.at("sketch_blocks")) * fleet.block_tokens),
        request_tokens_(p.at("request_tokens")) {
    const RuleInfo inner = KvcastRule();
    for (size_t cell = 0; cell < cells_; ++cell) {
      rules_.push_back(inner.make(inner.defaults, fleet));
    }
  }

  size_t Choose(const RuleInput& input) override {
    std::vector<std::vector<size_t>> positions(cells_);
    for (size_t i = 0; i < input.engines.size(); ++i) {
      positions[CellOf(input.engines[i].engine)].push_back(i);
    }
    std::vector<size_t> live_cells;  // cells with engines
    std::vector<double> costs;
    for (size_t cell = 0; cell < cells_; ++cell) {
      if (positions[cell].empty()) continue;
      live_cells.push_back(cell);
      costs.push_back(CostOf(input, positions[cell]));
    }
    latest_ = live_cells[Cheapest(costs, input.draw)];
    const std::vector<size_t>& in_cell = positions[latest_];
    std::vector<RuleEngine> engines;
    std::vector<WorkerMatch> matches;
    for (const size_t i : in_cell) {
      engines.push_back(input.engines[i]);
      matches.push_back(input.matches[i]);
    }
    RuleInput inner = input;
    inner.engines = engines;
    inner.matches = matches;
    cell_of_[input.request] = latest_;
    return in_cell[rules_[latest_]->Choose(inner)];
  }

  void Admitted(size_t request, int64_t hit_tokens, double now_s) override {
    if (Rule* rule = RuleOf(request)) rule->Admitted(request, hit_tokens, now_s);
  }
  void FirstToken(size_t request, double now_s) override {
    if (Rule* rule = RuleOf(request)) rule->FirstToken(request, now_s);
  }
  void Finished(size_t request, double now_s) override {
    if (Rule* rule = RuleOf(request)) rule->Finished(request, now_s);
    cell_of_.erase(request);
  }
  void Applied(size_t engine, const EventBatch& batch) override {
    rules_[CellOf(engine)]->Applied(engine, batch);
  }
  void Removed(size_t engine) override { rules_[CellOf(engine)]->Removed(engine); }
  std::optional<double> PredictedFirstToken() const override {
    return rules_[latest_]->PredictedFirstToken();
  }
  int64_t KeepPrefixTokens() const override { return rules_[latest_]->KeepPrefixTokens(); }
  std::optional<int64_t> WillNotReturnAfter() const override {
    return rules_[latest_]->WillNotReturnAfter();
  }

 private:
  size_t CellOf(size_t engine) const { return engine * cells_ / engines_; }
  Rule* RuleOf(size_t request) const {
    const auto it = cell_of_.find(request);
    return it == cell_of_.end() ? nullptr : rules_[it->second].get();
  }

  // Returns the uncached prompt tokens of the request, plus the mean load of the cell's engines in
  // prompt tokens.
  double CostOf(const RuleInput& input, const std::vector<size_t>& positions) const {
    int64_t hit = 0;
    double queued = 0;
    for (const size_t i : positions) {
      const RuleEngine& engine = input.engines[i];
      hit = std::max(hit, engine.hit_tokens);
      queued += static_cast<double>(engine.load.prefill_tokens) +
                request_tokens_ * static_cast<double>(engine.load.requests);
    }
    hit = sketch_tokens_ == 0 ? 0 : hit - hit % sketch_tokens_;
    return static_cast<double>(input.prompt_tokens - hit) +
           queued / static_cast<double>(positions.size());
  }

  const size_t engines_;
  const size_t cells_;
  const int64_t sketch_tokens_;  // the sketch's prefix lengths are multiples of this; 0: no sketch
  const double request_tokens_;  // cost of a running request, in prompt tokens
  std::vector<std::unique_ptr<Rule>> rules_;    // by cell
  std::unordered_map<size_t, size_t> cell_of_;  // by request
  size_t latest_ = 0;
};

}  // namespace

RuleInfo CellsRule() {
  return {"cells",
          "cells of engines: a sketch of the prefixes chooses the cell, kvcast chooses the engine",
          "kvcast, docs/scale.md",
          {{"cells", 4},
           {"sketch_blocks", 16},  // the sketch's prefix lengths are multiples of it; 0: no sketch
           {"request_tokens", 256}},
          [](const RuleParameters& p, const RuleFleet& fleet) -> std::unique_ptr<Rule> {
            return std::make_unique<RuleOfCells>(p, fleet);
          }};
}

}  // namespace kvcast::simulate
