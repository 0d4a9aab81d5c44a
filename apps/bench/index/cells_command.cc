// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include "apps/bench/index/cells.h"
#include "apps/bench/index/commands.h"
#include "apps/bench/index/corpus_source.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"

namespace kvcast::bench {
namespace {

constexpr char kCellsMethod[] =
    "One cell of the comparison with another prefix index, on a corpus; see\n"
    "bench/peers/README.md. apply, apply2: nanoseconds per stored or removed block; one thread\n"
    "(apply) or two threads (apply2) apply all events. quarter, drain: nanoseconds per removed\n"
    "block; quarter removes a quarter of the held blocks, drain removes all. query:\n"
    "microseconds of a query, while no event is applied. mixed: block operations per second;\n"
    "one thread applies the events, and one thread sends the queries. memory: bytes per held\n"
    "pair (worker, block), the larger of two figures: bytes of the allocator, and resident\n"
    "bytes. scores: a checksum of all scores.";

// Returns the content hash at the end of the file. LoadCorpus has already checked the hash.
std::string HashOfFile(const std::string& path) {
  std::vector<uint8_t> hash(32);
  std::ifstream file(path, std::ios::binary);
  file.seekg(-32, std::ios::end);
  file.read(reinterpret_cast<char*>(hash.data()), 32);
  return CorpusHash(hash);
}

}  // namespace

int RunCellsBench(const CellsBenchOptions& options) {
  const auto corpus = LoadCorpus({.file = options.corpus, .trace = {}});
  if (!corpus.ok()) return tools::Fail(corpus.status());
  Report report("cells", kCellsMethod, options.json);
  report.Note("corpus sha256 " + HashOfFile(options.corpus));
  const auto figures = MeasureCell(*corpus, options.cell,
                                   {.rounds = options.rounds,
                                    .points = options.points,
                                    .shards = static_cast<size_t>(options.shards)});
  if (!figures.ok()) return tools::Fail(figures.status());
  for (const CellFigure& figure : *figures) report.Figure(figure.name, figure.value, figure.unit);
  return report.Finish();
}

}  // namespace kvcast::bench
