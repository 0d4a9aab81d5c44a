// The cells of the comparison with another prefix index. A cell is one measurement that bench/peers
// runs on both indexes. bench/peers/README.md defines the cells.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench/index/churn.h"
#include "apps/bench/index/corpus.h"
#include "kvcast/core/status.h"

namespace kvcast::bench {

inline constexpr std::array<const char*, 8> kCellNames = {"apply", "apply2", "quarter", "drain",
                                                          "query", "mixed",  "memory",  "scores"};

struct CellConfig {
  int64_t rounds = 3;   // of apply, apply2, quarter, drain and mixed; only the final round counts
  int64_t points = 40;  // points of the replay at which queries run
  size_t shards = 1;    // of the index
};

struct CellFigure {
  std::string name;  // "cells.apply", "cells.query_p50", ...
  double value = 0;
  std::string unit;
};

// Measures the cell, which is one of kCellNames. Errors: kInvalidArgument if no cell has this name;
// kInternal if the index does not hold the expected number of blocks afterwards.
Result<std::vector<CellFigure>> MeasureCell(const Corpus& corpus, std::string_view cell,
                                            const CellConfig& config);

// A checksum over the scores of many queries. The order of the scores does not matter.
class ScoreSum {
 public:
  // `query`: the number of the query, from 0. `blocks`: at least 1.
  void Add(uint64_t query, uint32_t worker, uint64_t blocks) {
    sum_ += Mix64(Mix64(Mix64(query) ^ worker) ^ blocks);
    ++scores_;
    blocks_ += blocks;
  }
  // The upper 53 bits of the sum. A JSON number represents 53 bits exactly.
  uint64_t checksum() const { return sum_ >> 11; }
  uint64_t scores() const { return scores_; }
  uint64_t blocks() const { return blocks_; }  // the sum of all scores

 private:
  uint64_t sum_ = 0;
  uint64_t scores_ = 0;
  uint64_t blocks_ = 0;
};

}  // namespace kvcast::bench
