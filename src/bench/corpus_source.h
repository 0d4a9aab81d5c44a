// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/status.h"
#include "src/bench/commands.h"
#include "src/bench/corpus.h"

namespace kvcast::bench {

// Reads the corpus file, or makes a corpus from the trace. Not ok: the message names the file.
Result<Corpus> LoadCorpus(const CorpusOptions& options);

}  // namespace kvcast::bench
