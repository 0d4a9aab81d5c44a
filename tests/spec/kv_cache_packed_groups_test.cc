// Models of windowed MLA layers with several page sizes (DeepSeek-V4) get packed groups.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/spec/layer_testing.h"

namespace kvcast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

LayerSpec Compressed(std::string name, int64_t ratio) {
  LayerSpec layer = MlaLayer(std::move(name), 256, 512);
  layer.compress_ratio = ratio;
  return layer;
}

// Two compressed layers of each ratio and four windowed layers, as in a small DeepSeek-V4.
std::vector<LayerSpec> SmallModel() {
  std::vector<LayerSpec> layers;
  for (int i = 1; i <= 2; ++i) {
    layers.push_back(Compressed("a" + std::to_string(i), 4));    // 64 states: 65536 bytes
    layers.push_back(Compressed("b" + std::to_string(i), 128));  // 2 states: 2048 bytes
  }
  for (int i = 1; i <= 4; ++i) {
    layers.push_back(WindowMlaLayer("w" + std::to_string(i), 128, 64, 512));  // 65536 bytes
  }
  return layers;
}

// A tuple is one layer of each page size. The MLA layers are one group of two tuples: (a1, b1) and
// (a2, b2). The windowed layers have one page size, so they are four tuples. They form two groups
// of two tuples each.
TEST(PackedGroups, WindowedGroupsHaveTheNumberOfTuplesOfTheMlaGroup) {
  const KvCacheGroups groups = GroupsOf(SmallModel());
  EXPECT_THAT(NamesOf(groups),
              ElementsAre(Names{"a1", "b1", "a2", "b2"}, Names{"w1", "w3"}, Names{"w2", "w4"}));
  EXPECT_EQ(groups.groups[0].spec.block_size, 256);
  EXPECT_EQ(groups.groups[1].spec.block_size, 64);
  EXPECT_EQ(groups.page_bytes, 0);
  EXPECT_EQ(groups.block_bytes, 2 * 65536 + 2 * 2048)
      << "windowed pages use the bytes of the large MLA pages";
}

TEST(PackedGroups, SmallPagesArePaddedToTheNextMlaPage) {
  std::vector<LayerSpec> layers = SmallModel();
  for (int i = 1; i <= 2; ++i) {
    layers.push_back(WindowMlaLayer("s" + std::to_string(i), 8, 4, 200));  // 1600 bytes
    layers.push_back(WindowMlaLayer("t" + std::to_string(i), 8, 4, 512));  // 4096 bytes
  }
  const KvCacheGroups groups = GroupsOf(layers);
  ASSERT_THAT(groups.groups, SizeIs(4));
  EXPECT_THAT(NamesOf(groups)[3], ElementsAre("s1", "t1", "s2", "t2"));
  EXPECT_EQ(groups.groups[3].layers[0].page_bytes, 2048);
  EXPECT_EQ(groups.groups[3].layers[1].page_bytes, 65536);
  EXPECT_EQ(groups.block_bytes, 2 * 65536 + 2 * 2048);
}

// The model has 2 MLA tuples and 3 windowed tuples. Groups of 2 tuples need one padded windowed
// tuple. Groups of 3 tuples need one padded MLA tuple. The padding is equal, so the larger group
// size is chosen.
TEST(PackedGroups, TheLargestGroupSizeWithTheLeastPaddingIsChosen) {
  std::vector<LayerSpec> layers = SmallModel();
  layers.pop_back();
  EXPECT_THAT(NamesOf(GroupsOf(layers))[1], ElementsAre("w1", "w2", "w3"));
  EXPECT_EQ(GroupsOf(layers).block_bytes, 3 * 65536 + 2 * 2048);
}

TEST(PackedGroups, LayersWithDifferentWindowsAreInDifferentGroups) {
  std::vector<LayerSpec> layers = SmallModel();
  layers.push_back(WindowMlaLayer("x1", 256, 64, 512));
  layers.push_back(WindowMlaLayer("x2", 256, 64, 512));
  EXPECT_THAT(NamesOf(GroupsOf(layers)),
              ElementsAre(Names{"a1", "b1", "a2", "b2"}, Names{"w1", "w3"}, Names{"w2", "w4"},
                          Names{"x1", "x2"}));
}

TEST(PackedGroups, DenseLayersOfADraftHeadAreTheLastGroup) {
  std::vector<LayerSpec> layers = SmallModel();
  layers.insert(layers.begin(), FullLayer("draft"));
  const KvCacheGroups groups = GroupsOf(layers);
  ASSERT_THAT(groups.groups, SizeIs(4));
  EXPECT_THAT(NamesOf(groups)[3], ElementsAre("draft"));
  EXPECT_EQ(groups.block_bytes, 2 * 65536 + 2 * 2048 + 4096);
}

std::string PackingErrorOf(const std::vector<LayerSpec>& layers) {
  const auto groups = MakeKvCacheGroups(layers, {});
  EXPECT_FALSE(groups.ok());
  EXPECT_EQ(groups.status().code(), StatusCode::kInvalidArgument);
  return groups.status().message();
}

TEST(PackedGroups, LayersThatCannotBePackedAreAnError) {
  std::vector<LayerSpec> no_mla = {WindowMlaLayer("w1", 128, 64), WindowMlaLayer("w2", 64, 32)};
  EXPECT_THAT(PackingErrorOf(no_mla), HasSubstr("need MLA layers"));

  std::vector<LayerSpec> layers = SmallModel();
  layers.push_back(WindowMlaLayer("wide", 128, 64, 600));
  EXPECT_THAT(PackingErrorOf(layers), HasSubstr("layer wide: its page"));

  layers = SmallModel();
  layers.push_back(WindowMlaLayer("odd", 128, 64, 16));
  EXPECT_THAT(PackingErrorOf(layers), HasSubstr("layer odd"));

  layers = SmallModel();
  layers.push_back(MlaLayer("m", 128, 512));
  EXPECT_THAT(PackingErrorOf(layers), HasSubstr("block_size must be equal in all MLA layers"));

  layers = SmallModel();
  layers.push_back(FullLayer("f"));
  layers.push_back(MambaLayer("m", 16, 100));
  EXPECT_THAT(PackingErrorOf(layers),
              HasSubstr("block_size must be equal in all layers that are not MLA"));
}

}  // namespace
}  // namespace kvcast
