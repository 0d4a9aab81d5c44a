// Layers of a model that are in the same group share a block table. Each test checks one grouping
// rule.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/spec/kv_cache_groups.h"

#include <gmock/gmock.h>

#include "tests/spec/layer_testing.h"

namespace kvcast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr KvCacheGroupOptions kNoHybrid{.hybrid_manager = false};

TEST(PageBytes, IsHeadsTimesStatesTimesKeyAndValue) {
  LayerSpec layer = FullLayer("f");
  EXPECT_EQ(*PageBytes(layer), 16 * 256);
  layer.num_heads = 8;
  EXPECT_EQ(*PageBytes(layer), 8 * 16 * 256);
  layer.head_size_v = 32;
  EXPECT_EQ(*PageBytes(layer), 8 * 16 * (64 + 32) * 2);
  layer.dtype_bytes = 1;
  EXPECT_EQ(*PageBytes(layer), 8 * 16 * (64 + 32));
  layer.state_bytes = 100;
  EXPECT_EQ(*PageBytes(layer), 8 * 16 * 100) << "the backend packs a state in its own way";
}

TEST(PageBytes, MlaHasNoValuesAndMayCompressTokens) {
  LayerSpec layer = MlaLayer("m", 256, 512);
  EXPECT_EQ(*PageBytes(layer), 256 * 512 * 2);
  layer.compress_ratio = 4;
  EXPECT_EQ(*PageBytes(layer), 64 * 512 * 2);
}

TEST(PageBytes, PaddingReplacesAndAMambaPageIsOneState) {
  LayerSpec layer = FullLayer("f");
  layer.padded_page_bytes = 5000;
  EXPECT_EQ(*PageBytes(layer), 5000);
  LayerSpec mamba = MambaLayer("m", 512, 777);
  EXPECT_EQ(*PageBytes(mamba), 777);
  mamba.padded_page_bytes = 1000;
  EXPECT_EQ(*PageBytes(mamba), 1000);
}

TEST(KvCacheGroups, NoLayersGiveNoGroups) {
  EXPECT_THAT(GroupsOf({}).groups, IsEmpty());
  EXPECT_THAT(GroupsOf({}, kNoHybrid).groups, IsEmpty());
}

TEST(KvCacheGroups, EqualLayersAreOneGroup) {
  const KvCacheGroups groups = GroupsOf(FullAndWindow(3, 0));
  EXPECT_THAT(NamesOf(groups), ElementsAre(Names{"f1", "f2", "f3"}));
  EXPECT_EQ(groups.groups[0].spec, GroupSpec{});
  EXPECT_EQ(groups.page_bytes, 4096);
  EXPECT_EQ(groups.group_size, 3);
  EXPECT_EQ(groups.block_bytes, 3 * 4096);
}

TEST(KvCacheGroups, FullAttentionThatRemembersAWindowMergesWithPlainFullAttention) {
  std::vector<LayerSpec> layers = FullAndWindow(2, 0);
  layers[1].spec.sliding_window = 64;
  const KvCacheGroups groups = GroupsOf(layers);
  EXPECT_THAT(NamesOf(groups), ElementsAre(Names{"f1", "f2"}));
  EXPECT_EQ(groups.groups[0].spec.sliding_window, 0) << "the window has no effect on the cache";
}

TEST(KvCacheGroups, ARememberedWindowDoesNotSplitALayersGroup) {
  std::vector<LayerSpec> layers = FullAndWindow(2, 4);
  layers[0].spec.sliding_window = 64;
  EXPECT_THAT(NamesOf(GroupsOf(layers)),
              ElementsAre(Names{"f1", "f2"}, Names{"s1", "s3"}, Names{"s2", "s4"}));
}

// With one kind and block size but several page sizes, one block table fits all layers.
TEST(KvCacheGroups, UniformTypeIsOneGroupOfDifferentPages) {
  std::vector<LayerSpec> layers = FullAndWindow(2, 0);
  layers[1].num_heads = 3;
  layers.push_back(MlaLayer("mla"));
  const KvCacheGroups groups = GroupsOf(layers);
  EXPECT_THAT(NamesOf(groups), ElementsAre(Names{"f1", "f2", "mla"}));
  EXPECT_EQ(groups.groups[0].spec.kind, SpecKind::kFullAttention) << "the first layer decides";
  EXPECT_EQ(groups.page_bytes, 0);
  EXPECT_EQ(groups.block_bytes, 4096 + 3 * 4096 + 4096);
  EXPECT_EQ(groups.groups[0].layers[1].page_bytes, 3 * 4096);
}

TEST(KvCacheGroups, WindowsOfOneSizeAreUniformAndOfTwoSizesAreNot) {
  std::vector<LayerSpec> layers = {WindowLayer("a", 64), WindowLayer("b", 64)};
  layers[1].num_heads = 2;
  EXPECT_THAT(GroupsOf(layers).groups, SizeIs(1));
  layers[1].spec.sliding_window = 128;
  EXPECT_THAT(GroupsOf(layers).groups, SizeIs(2));
}

TEST(KvCacheGroups, MambaIsUniformWithEqualSpeculativeBlocksOnly) {
  std::vector<LayerSpec> layers = {MambaLayer("a", 16, 100), MambaLayer("b", 16, 200)};
  EXPECT_THAT(GroupsOf(layers).groups, SizeIs(1));
  layers[1].spec.speculative_blocks = 1;
  EXPECT_THAT(GroupsOf(layers).groups, SizeIs(2));
}

// 2 full + 4 SWA layers: (f1,f2),(s1,s3),(s2,s4).
TEST(KvCacheGroups, TwoFullAndFourSwaGiveThreeGroupsOfStridedLayers) {
  const KvCacheGroups groups = GroupsOf(FullAndWindow(2, 4));
  EXPECT_THAT(NamesOf(groups),
              ElementsAre(Names{"f1", "f2"}, Names{"s1", "s3"}, Names{"s2", "s4"}));
  EXPECT_EQ(groups.group_size, 2);
  EXPECT_EQ(groups.block_bytes, 2 * 4096);
  EXPECT_EQ(groups.groups[1].spec, groups.groups[2].spec);
}

// 3 full + 7 SWA layers: 1 + 3 groups.
TEST(KvCacheGroups, ThreeFullAndSevenSwaPadTheLastGroups) {
  EXPECT_THAT(NamesOf(GroupsOf(FullAndWindow(3, 7))),
              ElementsAre(Names{"f1", "f2", "f3"}, Names{"s1", "s4", "s7"}, Names{"s2", "s5"},
                          Names{"s3", "s6"}));
}

// 6 full + 5 SWA layers: 2 groups, because the largest kind has fewer than 1.5 times the layers of
// the smallest.
TEST(KvCacheGroups, SixFullAndFiveSwaGiveTwoGroupsOfTheLargerSize) {
  const KvCacheGroups groups = GroupsOf(FullAndWindow(6, 5));
  EXPECT_THAT(groups.groups, SizeIs(2));
  EXPECT_EQ(groups.group_size, 6);
  EXPECT_THAT(GroupsOf(FullAndWindow(6, 4)).groups, SizeIs(3)) << "1.5 times is not below";
}

// gemma-3-1b has 26 layers. Layers 5, 11, 17 and 23 are full attention. This gives 7 groups, and
// group_idx 6 is full attention.
TEST(KvCacheGroups, GemmaHasSevenGroupsInOrderOfTheFirstLayer) {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 26; ++i) {
    const std::string name = std::to_string(i);
    layers.push_back(i % 6 == 5 ? FullLayer(name) : WindowLayer(name, 512));
  }
  const KvCacheGroups groups = GroupsOf(layers);
  ASSERT_THAT(groups.groups, SizeIs(7));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(groups.groups[i].spec.kind, SpecKind::kSlidingWindow);
  }
  EXPECT_EQ(groups.groups[6].spec.kind, SpecKind::kFullAttention);
  EXPECT_EQ(groups.group_size, 4);
  EXPECT_THAT(NamesOf(groups)[0], ElementsAre("0", "7", "14", "21"));
}

TEST(KvCacheGroups, ADraftLayerMarksItsGroupOnly) {
  std::vector<LayerSpec> layers = FullAndWindow(2, 4);
  layers[4].spec.eagle = true;
  const KvCacheGroups groups = GroupsOf(layers);
  ASSERT_THAT(groups.groups, SizeIs(3));
  EXPECT_FALSE(groups.groups[0].spec.eagle);
  EXPECT_TRUE(groups.groups[1].spec.eagle) << "s3 is in the second group";
  EXPECT_FALSE(groups.groups[2].spec.eagle);
}

TEST(KvCacheGroups, SmallerPagesGetLargerBlocks) {
  std::vector<LayerSpec> layers = FullAndWindow(1, 1);
  layers[0].num_heads = 4;
  const KvCacheGroups groups = GroupsOf(layers);
  ASSERT_THAT(groups.groups, SizeIs(2));
  EXPECT_EQ(groups.groups[0].spec.block_size, 16);
  EXPECT_EQ(groups.groups[1].spec.block_size, 64);
  EXPECT_EQ(groups.page_bytes, 4 * 4096);
}

TEST(KvCacheGroups, PagesThatDoNotDivideArePaddedWhereTheBackendCan) {
  std::vector<LayerSpec> layers = FullAndWindow(1, 1);
  layers[0].num_heads = 3;
  layers[1].num_heads = 2;
  layers[1].indexes_by_block_stride = true;
  const KvCacheGroups groups = GroupsOf(layers);
  ASSERT_THAT(groups.groups, SizeIs(2));
  EXPECT_EQ(groups.groups[1].spec.block_size, 16);
  EXPECT_EQ(groups.page_bytes, 3 * 4096);
}

TEST(KvCacheGroups, AMambaPageIsPaddedEvenIfItDivides) {
  const KvCacheGroups groups = GroupsOf({FullLayer("f", 544), MambaLayer("m", 544, 544 * 64)});
  ASSERT_THAT(groups.groups, SizeIs(2));
  EXPECT_EQ(groups.groups[1].spec.block_size, 544);
  EXPECT_EQ(groups.page_bytes, 544 * 256);
}

// The pages of the MLA layer and of the plain window layer do not fit each other. The window layer
// then keeps all tokens, and both layers are one group.
TEST(KvCacheGroups, MlaWithPlainWindowsOfOtherPagesFallsBackToOneGroup) {
  std::vector<LayerSpec> layers = {MlaLayer("mla", 16, 576), WindowLayer("s")};
  const KvCacheGroups groups = GroupsOf(layers);
  ASSERT_THAT(NamesOf(groups), ElementsAre(Names{"mla", "s"}));
  EXPECT_EQ(groups.groups[0].spec.kind, SpecKind::kMlaAttention);
  EXPECT_EQ(groups.block_bytes, 16 * 576 * 2 + 4096);
}

// Block sizes: full attention 544, Mamba 544, hidden states 136.
TEST(KvCacheGroups, HiddenStatesHaveGroupsOfTheirOwnAtADivisorOfTheBlockSizes) {
  LayerSpec hidden = MlaLayer("h", 16, 500);
  hidden.hidden_state = true;
  const KvCacheGroups groups = GroupsOf({hidden, FullLayer("f", 544), MambaLayer("m", 544, 1000)});
  ASSERT_THAT(NamesOf(groups), ElementsAre(Names{"f"}, Names{"m"}, Names{"h"}));
  EXPECT_EQ(groups.groups[2].spec.block_size, 136)
      << "139 tokens fit the page, and 136 divides 544";
  EXPECT_EQ(groups.groups[2].spec.kind, SpecKind::kMlaAttention);
  EXPECT_EQ(groups.page_bytes, 544 * 256);
}

TEST(KvCacheGroups, HiddenStatesAloneAreGroupedLikeOtherLayers) {
  std::vector<LayerSpec> layers = {MlaLayer("a"), MlaLayer("b", 16, 256)};
  for (LayerSpec& layer : layers) layer.hidden_state = true;
  EXPECT_THAT(GroupsOf(layers).groups, SizeIs(1));
  layers[1].spec.block_size = 8;
  EXPECT_THAT(GroupsOf(layers).groups, SizeIs(2));
}

TEST(KvCacheGroups, WithoutHybridManagerWindowsAndChunksBecomeFullAttention) {
  const KvCacheGroups windows = GroupsOf(FullAndWindow(2, 4), kNoHybrid);
  EXPECT_THAT(NamesOf(windows), ElementsAre(Names{"f1", "f2", "s1", "s2", "s3", "s4"}));
  EXPECT_EQ(windows.groups[0].spec, GroupSpec{});
  const KvCacheGroups chunks = GroupsOf({ChunkedLayer("c"), FullLayer("f")}, kNoHybrid);
  ASSERT_THAT(chunks.groups, SizeIs(1));
  EXPECT_EQ(chunks.groups[0].spec, GroupSpec{});
}

TEST(KvCacheGroups, WithoutHybridManagerModelsOfOneKindStayAsTheyAre) {
  const KvCacheGroups groups = GroupsOf(FullAndWindow(0, 2), kNoHybrid);
  ASSERT_THAT(groups.groups, SizeIs(1));
  EXPECT_EQ(groups.groups[0].spec.kind, SpecKind::kSlidingWindow);
}

TEST(KvCacheGroups, WithoutHybridManagerConvertedLayersTakeTheFullLayersBlockSize) {
  LayerSpec window = WindowMlaLayer("s", 64, 8);
  window.padded_page_bytes = 3000;
  const KvCacheGroups groups = GroupsOf({MlaLayer("m", 32), window}, kNoHybrid);
  ASSERT_THAT(groups.groups, SizeIs(1));
  EXPECT_EQ(groups.groups[0].spec.kind, SpecKind::kMlaAttention);
  EXPECT_EQ(groups.groups[0].spec.block_size, 32);
  EXPECT_EQ(groups.groups[0].layers[1].page_bytes, 4 * 3000) << "padding grows with the block";
}

TEST(KvCacheGroups, DecodeContextParallelMultipliesAttentionButNotMamba) {
  const KvCacheGroups groups =
      GroupsOf({FullLayer("f", 16), MambaLayer("m", 16, 100)}, {.decode_context_parallel = 4});
  ASSERT_THAT(groups.groups, SizeIs(2));
  EXPECT_EQ(groups.groups[0].spec.block_size, 64);
  EXPECT_EQ(groups.groups[1].spec.block_size, 16);
  EXPECT_EQ(groups.page_bytes, 4096) << "the page of one rank";
}

TEST(HybridManager, IsOnUnlessThereIsAConflict) {
  const std::vector<LayerSpec> chunked = {FullLayer("f"), ChunkedLayer("c")};
  std::vector<LayerSpec> chunked_eagle = chunked;
  chunked_eagle[0].spec.eagle = true;
  const std::vector<LayerSpec> windows = FullAndWindow(1, 1);
  EXPECT_TRUE(*ResolveHybridManager(windows, {}));
  EXPECT_FALSE(*ResolveHybridManager(windows, {.requested = false}));
  EXPECT_FALSE(*ResolveHybridManager(windows, {.platform_supports = false}));
  EXPECT_FALSE(*ResolveHybridManager(windows, {.connector_supports = false}));
  EXPECT_FALSE(*ResolveHybridManager(chunked, {}));
  EXPECT_TRUE(*ResolveHybridManager(chunked, {.allow_chunked_local = true}));
  EXPECT_FALSE(*ResolveHybridManager(chunked_eagle, {.allow_chunked_local = true}));
}

TEST(HybridManager, ARequestDespiteAConflictIsAnError) {
  const auto resolved =
      ResolveHybridManager(FullAndWindow(1, 1), {.requested = true, .connector_supports = false});
  EXPECT_EQ(resolved.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(resolved.status().message(), "hybrid manager: the KV connector does not support it");
}

}  // namespace
}  // namespace kvcast
