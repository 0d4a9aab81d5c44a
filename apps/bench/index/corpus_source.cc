// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/corpus_source.h"

#include <string>

#include "apps/bench/index/corpus_maker.h"
#include "apps/support/file.h"
#include "apps/support/trace.h"

namespace kvcast::bench {

Result<Corpus> LoadCorpus(const CorpusOptions& options) {
  if (!options.file.empty()) {
    auto content = tools::ReadFile(options.file);
    if (!content.ok()) return content.status();
    auto corpus =
        DecodeCorpus({reinterpret_cast<const uint8_t*>(content->data()), content->size()});
    if (corpus.ok()) return corpus;
    return Status(corpus.status().code(), options.file + ": " + corpus.status().message());
  }
  Result<std::string> path = options.trace;
  if (options.trace.empty()) path = tools::FindDataFile(tools::kBundledTrace);
  if (!path.ok()) return path.status();
  const auto trace = tools::LoadTrace(*path, options.requests);
  if (!trace.ok()) return trace.status();
  return MakeCorpus(*trace, {.workers = options.workers,
                             .copies = options.copies,
                             .block_tokens = options.block_tokens,
                             .pool_blocks = options.pool_blocks});
}

}  // namespace kvcast::bench
