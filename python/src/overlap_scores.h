// OverlapScores: the answers for one prompt, by worker, as Python sees them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/service/route/query.h"

namespace kvcast::python {

// Immutable. The answers and keys have the order of the sources.
class OverlapScores {
 public:
  using Key = std::pair<std::string, int64_t>;  // worker id, data-parallel rank

  // `block_size`: tokens per block of `scores`; 0: the hash block size of each worker.
  OverlapScores(std::vector<router::QueryAnswer> answers,
                std::vector<std::shared_ptr<const Key>> keys, int64_t block_size)
      : answers_(std::move(answers)), keys_(std::move(keys)), block_size_(block_size) {}

  // A dict with the value of `read` for each worker.
  template <typename Read>
  pybind11::dict ByWorker(Read&& read) const {
    pybind11::dict dict;
    for (size_t i = 0; i < answers_.size(); ++i) dict[KeyOf(i)] = read(answers_[i]);
    return dict;
  }
  // The workers that can reuse at least one block, with the number of whole blocks.
  pybind11::dict Scores() const;
  size_t size() const { return answers_.size(); }
  std::string Repr() const;

 private:
  pybind11::tuple KeyOf(size_t i) const {
    return pybind11::make_tuple(keys_[i]->first, keys_[i]->second);
  }

  std::vector<router::QueryAnswer> answers_;
  std::vector<std::shared_ptr<const Key>> keys_;
  int64_t block_size_;
};

}  // namespace kvcast::python
