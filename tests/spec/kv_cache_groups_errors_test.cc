// A set of layers that no pool can serve is refused before the engine starts. The error names the
// layer or the fields.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "tests/spec/layer_testing.h"

namespace kvcast {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::vector<LayerSpec>& layers, const KvCacheGroupOptions& options = {}) {
  const auto groups = MakeKvCacheGroups(layers, options);
  EXPECT_FALSE(groups.ok());
  EXPECT_EQ(groups.status().code(), StatusCode::kInvalidArgument);
  return groups.status().message();
}

std::string ErrorWith(LayerSpec layer, const std::function<void(LayerSpec&)>& change) {
  change(layer);
  return ErrorOf({std::move(layer)});
}

TEST(LayerErrors, EachNumberHasARange) {
  const LayerSpec full = FullLayer("f");
  using L = LayerSpec&;
  EXPECT_THAT(ErrorWith(full, [](L l) { l.spec.block_size = 0; }),
              HasSubstr("layer f: block_size must be between 1"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.num_heads = 0; }), HasSubstr("layer f: num_heads"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.head_size = 0; }), HasSubstr("layer f: head_size must"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.head_size_v = -1; }), HasSubstr("layer f: head_size_v"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.dtype_bytes = 0; }), HasSubstr("layer f: dtype_bytes"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.compress_ratio = 0; }),
              HasSubstr("layer f: compress_ratio"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.state_bytes = -1; }), HasSubstr("layer f: state_bytes"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.padded_page_bytes = -1; }),
              HasSubstr("layer f: padded_page_bytes"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.spec.reference_window = -1; }),
              HasSubstr("layer f: reference_window"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.spec.sink_tokens = -1; }),
              HasSubstr("layer f: sink_tokens"));
  EXPECT_THAT(ErrorWith(full, [](L l) { l.spec.speculative_blocks = -1; }),
              HasSubstr("layer f: speculative_blocks"));
}

TEST(LayerErrors, EachKindHasItsFields) {
  using L = LayerSpec&;
  EXPECT_THAT(ErrorWith(WindowLayer("s", 0), [](L) {}),
              HasSubstr("layer s: sliding_window must not be 0"));
  EXPECT_THAT(ErrorWith(ChunkedLayer("c", 0), [](L) {}),
              HasSubstr("layer c: chunk_size must not be 0"));
  EXPECT_THAT(ErrorWith(MambaLayer("m", 16, 0), [](L) {}), HasSubstr("layer m: state_bytes"));
  EXPECT_THAT(ErrorWith(WindowLayer("s"), [](L l) { l.spec.chunk_size = 64; }),
              HasSubstr("layer s: sliding_window and chunk_size exclude each other"));
  EXPECT_THAT(ErrorWith(FullLayer("f"), [](L l) { l.spec.kind = SpecKind::kUnknown; }),
              HasSubstr("layer f: kind"));
  EXPECT_THAT(ErrorWith(FullLayer("f"), [](L l) { l.hidden_state = true; }),
              HasSubstr("layer f: hidden_state"));
  EXPECT_THAT(ErrorWith(FullLayer("f"), [](L l) { l.compress_ratio = 4; }),
              HasSubstr("layer f: compress_ratio needs an MLA kind"));
  EXPECT_THAT(ErrorWith(MlaLayer("m"), [](L l) { l.compress_ratio = 3; }),
              HasSubstr("layer m: block_size (16) must be a multiple of compress_ratio (3)"));
}

TEST(LayerErrors, NamesArePresentAndUnique) {
  EXPECT_THAT(ErrorOf({FullLayer("")}), HasSubstr("no name"));
  EXPECT_THAT(ErrorOf({FullLayer("f"), FullLayer("f")}), HasSubstr("layer f: name"));
}

TEST(LayerErrors, PaddingMustHoldThePage) {
  EXPECT_THAT(ErrorWith(FullLayer("f"), [](LayerSpec& l) { l.padded_page_bytes = 4095; }),
              HasSubstr("layer f: padded_page_bytes is 4095, less than the page of 4096"));
}

TEST(LayerErrors, SizesThatPass63BitsAreErrors) {
  constexpr int64_t kHuge = int64_t{1} << 31;
  EXPECT_THAT(ErrorWith(FullLayer("f"),
                        [](LayerSpec& l) { l.num_heads = l.head_size = l.dtype_bytes = kHuge; }),
              HasSubstr("layer f: the page has more than"));
  EXPECT_THAT(ErrorWith(FullLayer("f"), [](LayerSpec& l) { l.state_bytes = int64_t{1} << 60; }),
              HasSubstr("layer f: the page has more than"));
  EXPECT_THAT(
      ErrorWith(FullLayer("f"), [](LayerSpec& l) { l.state_bytes = (int64_t{1} << 58) + 1; }),
      HasSubstr("layer f: the page has more than"));
  EXPECT_THAT(ErrorWith(FullLayer("f"),
                        [](LayerSpec& l) { l.num_heads = std::numeric_limits<int64_t>::max(); }),
              HasSubstr("layer f: num_heads"));
  std::vector<LayerSpec> layers = FullAndWindow(4, 0);
  for (LayerSpec& layer : layers) layer.padded_page_bytes = int64_t{1} << 61;
  EXPECT_THAT(ErrorOf(layers), HasSubstr("one block takes more than"));
  for (size_t i = 0; i < 4; ++i) layers[i].padded_page_bytes += static_cast<int64_t>(i);
  EXPECT_THAT(ErrorOf(layers), HasSubstr("one block takes more than"));
  layers = {FullLayer("f"), MambaLayer("m", 16, int64_t{1} << 60)};
  EXPECT_THAT(ErrorOf(layers), HasSubstr("layer f: block_size"));
  EXPECT_THAT(MaxMemoryUsageBytes(MambaLayer("m", 1, int64_t{1} << 60, MambaMode::kAll),
                                  {.max_model_len = 1 << 30})
                  .status()
                  .message(),
              HasSubstr("layer m: one request takes more than"));
}

TEST(GroupErrors, PagesThatCannotBeUnifiedNameTheLayer) {
  std::vector<LayerSpec> layers = FullAndWindow(1, 1);
  layers[0].num_heads = 3;
  layers[1].num_heads = 2;
  EXPECT_THAT(ErrorOf(layers), HasSubstr("layer s1: its page of 8192 bytes cannot be brought to"));
}

TEST(GroupErrors, TheFallbackForMlaAndWindowsNeedsOneBlockSize) {
  EXPECT_THAT(ErrorOf({MlaLayer("m", 16, 576), WindowLayer("s", 64, 32)}),
              HasSubstr("layer s: its page"));
}

TEST(GroupErrors, AHiddenStateThatFitsNoPage) {
  LayerSpec hidden = MlaLayer("h", 16, 5000);
  hidden.hidden_state = true;
  std::vector<LayerSpec> layers = FullAndWindow(1, 1);
  layers.push_back(hidden);
  EXPECT_THAT(ErrorOf(layers), HasSubstr("layer h: the hidden state of one token does not fit"));
}

TEST(GroupErrors, RememberedWindowsAndChunksDoNotMix) {
  std::vector<LayerSpec> layers = FullAndWindow(2, 0);
  layers[0].spec.sliding_window = 64;
  layers[1].spec.chunk_size = 64;
  EXPECT_THAT(ErrorOf(layers), HasSubstr("with sliding_window and others with chunk_size"));
  layers[1].spec.chunk_size = 0;
  layers[1].spec.sliding_window = 128;
  EXPECT_THAT(ErrorOf(layers), HasSubstr("different positive values of sliding_window"));
}

TEST(GroupErrors, WithoutHybridManager) {
  const KvCacheGroupOptions off{.hybrid_manager = false};
  EXPECT_THAT(ErrorOf({WindowLayer("a", 64), WindowLayer("b", 128)}, off),
              HasSubstr("needs a full-attention layer"));
  EXPECT_THAT(ErrorOf({FullLayer("a"), FullLayer("b", 32), WindowLayer("s")}, off),
              HasSubstr("need the same block_size, not 16 and 32"));
  EXPECT_THAT(ErrorOf({FullLayer("f"), MambaLayer("m", 16, 100)}, off),
              HasSubstr("cannot all become full attention"));
  EXPECT_THAT(ErrorOf({FullLayer("f"), WindowLayer("s"), ChunkedLayer("c")}, off),
              HasSubstr("with sliding_window and others with chunk_size"));
}

TEST(GroupErrors, DecodeContextParallelNeedsFullAttentionAndMamba) {
  EXPECT_THAT(ErrorOf(FullAndWindow(1, 1), {.decode_context_parallel = 2}),
              HasSubstr("layer s1: decode_context_parallel does not work with sliding_window"));
  EXPECT_THAT(ErrorOf({FullLayer("f"), ChunkedLayer("c")}, {.decode_context_parallel = 2}),
              HasSubstr("layer c: decode_context_parallel"));
  EXPECT_THAT(ErrorOf(FullAndWindow(1, 0), {.decode_context_parallel = 0}),
              HasSubstr("decode_context_parallel must be between 1"));
  EXPECT_THAT(ErrorOf(FullAndWindow(1, 0), {.decode_context_parallel = int64_t{1} << 31}),
              HasSubstr("block_size over all ranks"));
}

}  // namespace
}  // namespace kvcast
