// SPDX-License-Identifier: Apache-2.0
#include "python/src/query_arguments.h"

#include "python/src/errors.h"
#include "python/src/hashes.h"
#include "python/src/values.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

void CheckSize(const char* name, size_t size, size_t most) {
  if (size > most) {
    ThrowInvalid(std::string(name) + ": more than " + std::to_string(most) + " elements");
  }
}

}  // namespace

void CheckText(const char* name, const std::string& text) {
  if (text.size() <= router::kMaxQueryTextBytes) return;
  ThrowInvalid(std::string(name) + ": longer than " + std::to_string(router::kMaxQueryTextBytes) +
               " bytes");
}

QueryArguments::QueryArguments(const py::object& hashes, const py::object& token_ids,
                               const std::string& model, const std::string& lora_name,
                               const std::string& lora_path, const std::string& cache_salt,
                               const py::object& mm_items, int64_t hash_block_size,
                               int64_t prompt_tokens, const py::object& workers,
                               const char* workers_name) {
  const bool by_tokens = !token_ids.is_none();
  if (by_tokens != hashes.is_none())
    ThrowInvalid("exactly one of hashes and token_ids is required");
  query_.by_tokens = by_tokens;
  query_.model = model;
  query_.inputs.lora_name = lora_name;
  query_.inputs.lora_path = lora_path;
  query_.inputs.cache_salt = cache_salt;
  CheckSize("mm_items", py::len(mm_items), router::kMaxQueryItems);
  if (py::len(mm_items) > 0) query_.inputs.mm_items = MultimodalItemsOf(mm_items);
  query_.hash_block_size = hash_block_size;
  query_.prompt_tokens = prompt_tokens;
  if (!workers.is_none()) {
    for (const py::handle name : workers) {
      CheckText(workers_name, query_.workers.emplace_back(TextOf(name, workers_name)));
    }
    if (query_.workers.empty()) ThrowInvalid(std::string(workers_name) + ": must not be empty");
  }
  CheckCombination(by_tokens);
  by_tokens ? ReadTokens(token_ids) : ReadHashes(hashes);
}

QueryArguments QueryArguments::OfHashes(py::handle hashes) {
  QueryArguments arguments;
  arguments.query_.by_tokens = false;
  arguments.ReadHashes(hashes);
  return arguments;
}

QueryArguments QueryArguments::OfTokens(py::handle token_ids) {
  QueryArguments arguments;
  arguments.ReadTokens(token_ids);
  return arguments;
}

void QueryArguments::ReadTokens(py::handle token_ids) {
  tokens_.emplace(token_ids, "token_ids");
  query_.borrowed_tokens = tokens_->tokens();
  query_.prompt_tokens = std::ssize(query_.borrowed_tokens);
  if (query_.prompt_tokens == 0) ThrowInvalid("token_ids: must not be empty");
  CheckSize("token_ids", query_.borrowed_tokens.size(), router::kMaxQueryTokens);
}

void QueryArguments::ReadHashes(py::handle hashes) {
  hashes_.emplace(hashes, "hashes");
  query_.borrowed_hashes = hashes_->integers();
  CheckSize("hashes", query_.borrowed_hashes.size(), router::kMaxQueryHashes);
  CheckSize("hashes", hashes_->hashes().size(), router::kMaxQueryHashes);
  query_.hashes = std::move(hashes_->hashes());
}

void QueryArguments::CheckCombination(bool by_tokens) const {
  CheckText("model", query_.model);
  CheckText("lora_name", query_.inputs.lora_name);
  CheckText("lora_path", query_.inputs.lora_path);
  CheckText("cache_salt", query_.inputs.cache_salt);
  for (const MultimodalItem& item : query_.inputs.mm_items) {
    CheckText("mm_items: identifier", item.identifier);
  }
  if (query_.hash_block_size < 0) ThrowInvalid("hash_block_size: must be at least 0");
  if (query_.prompt_tokens < 0 || query_.prompt_tokens > router::kMaxPromptTokens) {
    ThrowInvalid("prompt_tokens: must be from 0 to 2^31");
  }
  if (by_tokens && (query_.hash_block_size > 0 || query_.prompt_tokens > 0)) {
    ThrowInvalid("hash_block_size and prompt_tokens are allowed only with hashes");
  }
  const bool has_inputs = !query_.inputs.empty() || !query_.inputs.lora_path.empty();
  if (!by_tokens && has_inputs) {
    ThrowInvalid(
        "lora_name, lora_path, cache_salt and mm_items are allowed only with token_ids, because "
        "the hashes contain them");
  }
}

router::Query QueryArguments::Own() const {
  router::Query query = query_;
  query.tokens.assign(query.borrowed_tokens.begin(), query.borrowed_tokens.end());
  for (const uint64_t hash : query.borrowed_hashes) query.hashes.emplace_back(hash);
  query.borrowed_tokens = {};
  query.borrowed_hashes = {};
  return query;
}

}  // namespace kvcast::python
