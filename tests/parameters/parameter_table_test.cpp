// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/parameter_table.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace ballast::parameters {
namespace {

ParameterTable three_segments() {
  ParameterTable table;
  table.declare({.name = "norm", .shape = {5}, .initialization = Initialization::one()});
  table.declare({.name = "matrix",
                 .shape = {3, 70},
                 .initialization = Initialization::normal(0.5),
                 .decay = true});
  table.declare(
      {.name = "frozen", .shape = {4}, .initialization = Initialization::zero(), .frozen = true});
  return table;
}

TEST(ParameterTable, SegmentsAreAlignedDisjointAndGroupedByDecay) {
  ParameterTable table = three_segments();
  table.allocate({});
  ASSERT_EQ(table.groups().size(), 2U);
  EXPECT_TRUE(table.groups()[0].decay);
  EXPECT_EQ(table.groups()[0].end, table.groups()[1].begin);
  EXPECT_EQ(table.groups()[1].end, table.gradient().numel()) << "what is frozen is in none";
  at::Tensor owner = at::zeros_like(table.master());
  for (const Segment& segment : table.segments()) {
    EXPECT_EQ(segment.offset % ParameterTable::kAlignment, 0);
    table.view(owner, segment).add_(1);
    if (segment.frozen) continue;
    const auto& group = table.groups()[segment.decay ? 0 : 1];
    EXPECT_TRUE(segment.offset >= group.begin && segment.offset + segment.size <= group.end)
        << segment.name;
  }
  EXPECT_EQ(owner.max().item<float>(), 1);
  EXPECT_EQ(owner.sum().item<float>(), static_cast<float>(table.num_parameters()));
}

TEST(ParameterTable, ModulesSeeTheFlatBuffers) {
  ParameterTable table;
  const kernels::Parameter& weight = table.declare({.name = "w", .shape = {2, 3}});
  table.declare({.name = "other", .shape = {100}});
  table.allocate({});
  table.master().fill_(7);
  weight.gradient.fill_(3);
  EXPECT_EQ(weight.value.sum().item<float>(), 42);
  EXPECT_EQ(table.gradient().sum().item<float>(), 18);
}

TEST(ParameterTable, FrozenSegmentsHaveNoGradient) {
  ParameterTable table;
  const kernels::Parameter& weight = table.declare({.name = "w", .shape = {2}, .frozen = true});
  table.allocate({});
  EXPECT_TRUE(weight.value.defined());
  EXPECT_FALSE(weight.gradient.defined());
}

TEST(ParameterTable, WorkingCopyFollowsTheMasterInItsOwnDtype) {
  ParameterTable table = three_segments();
  table.allocate({.working = at::kBFloat16, .master = at::kFloat});
  table.initialize(1);
  EXPECT_TRUE(at::equal(table.working(), table.master().to(at::kBFloat16)));
  EXPECT_EQ(table.gradient().scalar_type(), at::kBFloat16);
  EXPECT_EQ(table.first_moment().scalar_type(), at::kFloat);
}

TEST(ParameterTable, InitialValuesDependOnSeedAndNameAlone) {
  ParameterTable a = three_segments(), b;
  b.declare({.name = "something before", .shape = {50}, .decay = true});
  b.declare({.name = "matrix",
             .shape = {3, 70},
             .initialization = Initialization::normal(0.5),
             .decay = true});
  a.allocate({});
  b.allocate({});
  a.initialize(3);
  b.initialize(3);
  const auto matrix = [](const ParameterTable& t) {
    return t.view(t.master(), t.segment("matrix")).clone();
  };
  EXPECT_TRUE(at::equal(matrix(a), matrix(b)));
  EXPECT_NEAR(matrix(a).std().item<double>(), 0.5, 0.1);
  a.initialize(4);
  EXPECT_FALSE(at::equal(matrix(a), matrix(b)));
}

TEST(ParameterTable, KnowsTheBlockOfASegment) {
  ParameterTable table;
  table.declare({.name = "before", .shape = {1}});
  table.declare_in_block(2);
  table.declare({.name = "within", .shape = {1}});
  table.declare_in_block(std::nullopt);
  table.declare({.name = "after", .shape = {1}});
  EXPECT_EQ(table.segment("within").block, 2);
  EXPECT_EQ(table.segment("before").block, std::nullopt);
  EXPECT_EQ(table.segment("after").block, std::nullopt);
}

TEST(ParameterTable, OwnersLieOneAfterAnother) {
  ParameterTable table;
  for (const Owner owner : {Owner::kExpert, Owner::kRouter, Owner::kShared, Owner::kShard}) {
    for (const bool decay : {false, true})
      table.declare({.name = std::to_string(int(owner)) + (decay ? "decays" : "stays"),
                     .shape = {3 + int(owner)},
                     .owner = owner,
                     .decay = decay});
  }
  table.allocate({});
  int64_t end = 0;
  for (const Owner owner : {Owner::kShard, Owner::kShared, Owner::kRouter, Owner::kExpert}) {
    EXPECT_EQ(table.range(owner).begin, end);
    end = table.range(owner).end;
    at::Tensor flat = at::zeros_like(table.master());
    table.range(owner).of(flat).fill_(1);
    for (const Segment& segment : table.segments()) {
      EXPECT_EQ(table.view(flat, segment).sum().item<double>(),
                segment.owner == owner ? static_cast<double>(segment.size) : 0)
          << segment.name;
    }
  }
  EXPECT_EQ(end, table.master().numel());
  EXPECT_EQ(table.range(Owner::kShard, Owner::kRouter).size(), table.range(Owner::kExpert).begin);
  EXPECT_EQ(table.groups().size(), 8U);
}

TEST(ParameterTable, ShardsAreInitialisedAsPartsOfTheWhole) {
  const SegmentSpec specs[] = {
      {.name = "rows", .shape = {11, 6}, .initialization = Initialization::normal(0.5)},
      {.name = "matrices",
       .shape = {18, 5},
       .initialization = Initialization::normal(0.5),
       .matrices = {12, 3, 3}},
      {.name = "columns", .shape = {5, 6}, .initialization = Initialization::normal(0.5)},
      {.name = "orthogonal", .shape = {6, 8}, .initialization = Initialization::orthogonal(2)},
      {.name = "ones", .shape = {12}, .initialization = Initialization::one()}};
  const Division divisions[] = {{}, {}, {.dim = 1}, {}, {}};
  ParameterTable whole;
  for (const SegmentSpec& spec : specs) whole.declare(spec);
  whole.allocate({});
  whole.initialize(5);
  for (const int64_t shards : {1, 2, 3}) {
    std::vector<at::Tensor> gathered;
    for (const SegmentSpec& spec : specs) gathered.push_back(at::full(spec.shape, -7.0F));
    for (int64_t shard = 0; shard < shards; ++shard) {
      ParameterTable part;
      for (size_t i = 0; i < std::size(specs); ++i) {
        Division division = divisions[i];
        division.shard = shard;
        division.shards = shards;
        part.declare(divided(specs[i], division));
      }
      part.allocate({});
      part.initialize(5);
      for (size_t i = 0; i < std::size(specs); ++i) {
        const Segment& segment = part.segment(specs[i].name);
        EXPECT_EQ(segment.owner, shards > 1 ? Owner::kShard : Owner::kShared);
        const at::Tensor values = part.view(part.master(), segment);
        if (segment.slice) {
          segment.slice->put(values, gathered[i]);
        } else {
          gathered[i].copy_(values);
        }
      }
    }
    for (size_t i = 0; i < std::size(specs); ++i)
      EXPECT_TRUE(at::equal(gathered[i], whole.view(whole.master(), whole.segments()[i])))
          << specs[i].name << " " << shards;
  }
}

TEST(ParameterTable, RefusesARepeatedName) {
  ParameterTable table = three_segments();
  EXPECT_THROW(table.declare({.name = "norm", .shape = {1}}), std::logic_error);
}

}  // namespace
}  // namespace ballast::parameters
