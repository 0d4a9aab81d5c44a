// QueryArguments: the arguments of a query, read from Python objects.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "python/src/arguments.h"
#include "router/service/route/query.h"

namespace kvcast::python {

// Throws InvalidArgumentError if `text` has more than router::kMaxQueryTextBytes bytes. `name`: the
// name of the argument, for the message.
void CheckText(const char* name, const std::string& text);

// Borrows the buffers of the Python objects. Create and destroy it with the GIL held.
class QueryArguments {
 public:
  // For a query without other arguments. Faster than the constructor.
  static QueryArguments OfHashes(pybind11::handle hashes);
  static QueryArguments OfTokens(pybind11::handle token_ids);
  // Errors: TypeError; InvalidArgumentError for a wrong value or a wrong combination.
  // `workers_name`: the name of the argument `workers`, for the messages.
  QueryArguments(const pybind11::object& hashes, const pybind11::object& token_ids,
                 const std::string& model, const std::string& lora_name,
                 const std::string& lora_path, const std::string& cache_salt,
                 const pybind11::object& mm_items, int64_t hash_block_size, int64_t prompt_tokens,
                 const pybind11::object& workers, const char* workers_name = "workers");
  // Borrows the prompt if C++ can read the prompt in place. This object must outlive the query.
  const router::Query& query() const { return query_; }
  // A query that owns its prompt.
  router::Query Own() const;

 private:
  QueryArguments() = default;
  void ReadTokens(pybind11::handle token_ids);
  void ReadHashes(pybind11::handle hashes);
  void CheckCombination(bool by_tokens) const;

  std::optional<TokenArgument> tokens_;
  std::optional<HashArgument> hashes_;
  router::Query query_;
};

}  // namespace kvcast::python
