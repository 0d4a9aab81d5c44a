// Every variant of the stream copy copies the same bytes as memcpy, at several alignments, and with
// sizes around the thresholds of the streaming code.
// SPDX-License-Identifier: Apache-2.0
#include "src/transfer/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/pools.h"

namespace kvcast::transfer {
namespace {

TEST(StreamCopy, CopiesAllBytesAndNoOther) {
  StreamCopyVariant variants[4];
  const size_t count = StreamCopyVariants(variants);
  ASSERT_GE(count, 1u);
  std::vector<std::byte> source(6000);
  kvcast::testing::FillWith(source, 1);
  for (size_t v = 0; v < count; ++v) {
    for (const size_t bytes : {0u, 1u, 2047u, 2048u, 2049u, 2303u, 2304u, 2305u, 4096u, 5001u}) {
      for (const size_t from : {0u, 1u, 63u, 64u}) {
        for (const size_t to : {0u, 1u, 31u, 63u, 64u}) {
          std::vector<std::byte> target(6000);
          kvcast::testing::FillWith(target, 2);
          auto want = target;
          std::copy_n(source.begin() + static_cast<long>(from), bytes,
                      want.begin() + static_cast<long>(to));
          variants[v].function(target.data() + to, source.data() + from, bytes,
                               from == 0 ? nullptr : source.data());
          StreamFence();
          ASSERT_EQ(target, want) << variants[v].name << ' ' << bytes << ' ' << from << ' ' << to;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcast::transfer
