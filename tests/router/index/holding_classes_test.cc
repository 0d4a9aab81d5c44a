// HoldingClasses sorts workers into classes by the blocks that they hold. HeldBlocks reads the
// blocks of a class.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

#include "router/index/held_blocks.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

constexpr uint16_t kGpu0 = 0;       // group 0 on the GPU
constexpr uint16_t kGpu1 = 1 << 8;  // group 1 on the GPU

struct HoldingClassesTest : ::testing::Test {
  HoldingClassesTest() { classes.Clear(); }
  ClassId Empty(const AmbiguousNames* ambiguous = nullptr) {
    return classes.ClassOf({&rules, ambiguous});
  }
  std::vector<size_t> PositionsOf(ClassId id, std::vector<ContentKey> contents = {}) {
    held.Read(classes, id, 200, contents);
    std::vector<size_t> positions;
    for (size_t part = 0; part < held.parts(); ++part) {
      for (size_t i = 0; i < 200; ++i) {
        if ((held.part(part).positions[i / 64] >> i % 64 & 1) != 0) positions.push_back(i);
      }
    }
    return positions;
  }

  const WorkerRules rules{WorkerConfig(), GroupRegistry(), {}};
  HoldingClasses classes;
  HeldBlocks held;
};

TEST_F(HoldingClassesTest, EqualHoldingsAreOneClass) {
  const ClassId empty = Empty();
  EXPECT_EQ(Empty(), empty);
  classes.Begin({.position = 0, .length = 4});
  const ClassId all = classes.With(empty, kGpu0, 0b1111);
  const ClassId two = classes.With(empty, kGpu0, 0b0011);
  EXPECT_EQ(classes.With(empty, kGpu0, 0b1111), all);
  EXPECT_EQ(classes.With(empty, kGpu0, 0b0011), two);
  EXPECT_NE(all, two);
  EXPECT_EQ(classes.With(empty, kGpu0, 0b1111), all);
  EXPECT_NE(classes.With(empty, kGpu1, 0b1111), all) << "another group";
  classes.Begin({.position = 4, .length = 4});
  EXPECT_NE(classes.With(empty, kGpu0, 0b1111), all) << "another stretch";
  EXPECT_NE(classes.With(all, kGpu0, 0b1111), classes.With(two, kGpu0, 0b1111));
}

TEST_F(HoldingClassesTest, OtherRulesAndOtherAmbiguousNamesAreOtherClasses) {
  const AmbiguousNames names;
  const WorkerRules others{WorkerConfig(), GroupRegistry(), {}};
  EXPECT_NE(classes.ClassOf({&rules, &names}), Empty());
  EXPECT_NE(classes.ClassOf({&others, nullptr}), Empty());
  EXPECT_EQ(classes.ClassOf({&rules, &names}), classes.ClassOf({&rules, &names}));
}

TEST_F(HoldingClassesTest, HeldBlocksHasTheBlocksOfAllStretches) {
  classes.Begin({.position = 60, .length = 10});
  ClassId id = classes.With(Empty(), kGpu0, 0b10'0010'0001);
  classes.Begin({.position = 127, .length = 3, .step = 4});
  id = classes.With(id, kGpu0, 0b101);
  classes.Begin({.position = 190, .length = 1});
  id = classes.With(id, kGpu1, 1);
  EXPECT_EQ(PositionsOf(id), (std::vector<size_t>{60, 65, 69, 127, 135, 190}));
  EXPECT_EQ(held.parts(), 2u);
  EXPECT_EQ(held.part(1).group, 1);
  EXPECT_FALSE(held.ambiguous());
}

TEST_F(HoldingClassesTest, TwoHashesOfOneContentAreAmbiguous) {
  classes.Begin({.position = 0, .length = 4});
  const ClassId one = classes.With(Empty(), kGpu0, 0b1111);
  classes.Begin({.position = 2, .length = 4});
  const ClassId both = classes.With(one, kGpu0, 0b1110);
  const ClassId larger = classes.With(Empty(), kGpu0, 0b1111);
  const std::vector<ContentKey> contents(6);
  EXPECT_EQ(PositionsOf(both, contents), (std::vector<size_t>{0, 1, 2, 4, 5}));
  EXPECT_TRUE(held.ambiguous());
  EXPECT_EQ(PositionsOf(larger, contents), (std::vector<size_t>{2, 3, 4, 5}));
  EXPECT_FALSE(held.ambiguous());
}

// A block that was found by its hash is counted, even if the content at its position is ambiguous.
TEST_F(HoldingClassesTest, AmbiguousContentsDropBlocksThatWereFoundByContent) {
  const std::vector<ContentKey> contents = {ContentKey{11}, ContentKey{12}, ContentKey{13}};
  AmbiguousNames names;
  names.AddContent(contents[1]);
  classes.Begin({.position = 0, .length = 3});
  ClassId id = classes.With(Empty(&names), kGpu0, 0b111);
  EXPECT_EQ(PositionsOf(id, contents), (std::vector<size_t>{0, 2}));
  EXPECT_TRUE(held.ambiguous());
  EXPECT_EQ(held.unnamed_units(), 0);
  classes.Begin({.position = 1, .length = 1, .by_hash = true});
  id = classes.With(id, kGpu0, 1);
  EXPECT_EQ(PositionsOf(id, contents), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(held.unnamed_units(), 2);
}

// Each stretch of this walk has one holder per worker, so two workers have the same class if and
// only if they hold the same blocks. The test makes so many classes that the table grows.
TEST_F(HoldingClassesTest, ManyClassesStayApart) {
  std::mt19937_64 random(6);
  std::set<std::pair<std::vector<size_t>, ClassId>> seen;
  std::vector<std::pair<ClassId, std::vector<size_t>>> workers(500, {Empty(), {}});
  for (size_t position = 0; position < 192; position += 32) {
    classes.Begin({.position = position, .length = 32});
    for (auto& [id, positions] : workers) {
      const uint64_t bits = random() % 8;
      if (bits == 0) continue;
      id = classes.With(id, kGpu0, bits);
      for (size_t i = 0; i < 3; ++i) {
        if ((bits >> i & 1) != 0) positions.push_back(position + i);
      }
    }
  }
  for (const auto& [id, positions] : workers) {
    EXPECT_EQ(PositionsOf(id), positions);
    seen.emplace(positions, id);
  }
  std::set<std::vector<size_t>> holdings;
  for (const auto& [positions, id] : seen) holdings.insert(positions);
  EXPECT_EQ(seen.size(), holdings.size()) << "one holding had two classes";
}

}  // namespace
}  // namespace kvcast::router
