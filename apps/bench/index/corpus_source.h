// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/index/commands.h"
#include "apps/bench/index/corpus.h"
#include "kvcast/core/status.h"

namespace kvcast::bench {

// Reads the corpus file, or makes a corpus from the trace. Not ok: the message names the file.
Result<Corpus> LoadCorpus(const CorpusOptions& options);

}  // namespace kvcast::bench
