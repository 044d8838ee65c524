// SPDX-License-Identifier: Apache-2.0
// How segments with Adam, with Muon and frozen ones share the flat buffers.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ballast/parameters/parameter_table.h"

namespace ballast::parameters {
namespace {

// An embedding, a block, a router, two experts as stacks.
struct SmallModel {
  ParameterTable table;
  const kernels::Parameter *embedding, *qkv, *experts, *router;

  SmallModel() {
    embedding = &table.declare({.name = "embedding", .shape = {10, 4}, .decay = true});
    table.declare_in_block(0);
    qkv = &table.declare(
        {.name = "block.qkv", .shape = {12, 4}, .decay = true, .matrices = {4, 4, 4}});
    table.declare({.name = "block.bias", .shape = {12}});
    table.declare_in_block(std::nullopt);
    router =
        &table.declare({.name = "router", .shape = {2, 4}, .owner = Owner::kRouter, .rate = 0.5});
    table.declare({.name = "shared.up", .shape = {6, 4}, .owner = Owner::kRouter, .decay = true});
    std::vector<SegmentSpec> up;
    for (const char* name : {"expert.0.up", "expert.1.up"})
      up.push_back({.name = name, .shape = {6, 4}, .owner = Owner::kExpert, .decay = true});
    experts = &table.declare_stack(std::move(up));
  }

  std::map<std::string, Update> updates() const {
    std::map<std::string, Update> result;
    for (const Segment& segment : table.segments()) result[segment.name] = segment.update;
    return result;
  }
};

TEST(Updates, MuonIsForMatricesOfBlocksAndExperts) {
  SmallModel m;
  m.table.allocate({.muon = true});
  using enum Update;
  const std::map<std::string, Update> expected{
      {"embedding", kAdam}, {"block.qkv", kMuon},   {"block.bias", kAdam}, {"router", kAdam},
      {"shared.up", kMuon}, {"expert.0.up", kMuon}, {"expert.1.up", kMuon}};
  EXPECT_EQ(m.updates(), expected);
  for (const ParameterTable::Group& group : m.table.groups()) {
    for (const Segment& segment : m.table.segments()) {
      if (segment.offset >= group.begin && segment.offset < group.end) {
        EXPECT_EQ(segment.update, group.update) << segment.name;
        EXPECT_EQ(segment.owner, group.owner) << segment.name;
      }
    }
  }
}

// A step writes the gradients of products, adds to all others, and leaves some out.
TEST(Updates, GradientsOfProductsAreForgottenAndOthersInTheirGroupCleared) {
  ParameterTable table;
  const auto& first =
      table.declare({.name = "first", .shape = {3, 4}, .decay = true, .multiplied = true});
  const auto& second =
      table.declare({.name = "second", .shape = {3, 4}, .decay = true, .multiplied = true});
  const auto& table_of_rows = table.declare({.name = "rows", .shape = {5, 4}, .decay = true});
  const auto& bias = table.declare({.name = "bias", .shape = {4}});
  const auto& frozen = table.declare(
      {.name = "frozen", .shape = {3, 4}, .decay = true, .frozen = true, .multiplied = true});
  table.allocate({.writes_gradients = true});
  EXPECT_FALSE(frozen.is_unwritten.defined() || bias.is_unwritten.defined() ||
               table_of_rows.is_unwritten.defined());
  for (const ParameterTable::Group& group : table.groups())
    EXPECT_EQ(group.forgotten, group.decay) << "the group of the bias is cleared by Adam";
  for (int step = 0; step < 2; ++step) {
    table.gradient().fill_(7);  // what the step before left
    bias.gradient.zero_();
    table.forget_gradients();
    EXPECT_TRUE(first.is_unwritten.item<bool>() && second.is_unwritten.item<bool>());
    EXPECT_TRUE(at::equal(table_of_rows.gradient, at::zeros({5, 4})));
    const kernels::GradientSum sum(first.gradient, first.is_unwritten);
    if (sum.begins()) sum.values.fill_(2);
    table.settle_gradients();
    EXPECT_TRUE(at::equal(first.gradient, at::full({3, 4}, 2.0)));
    EXPECT_TRUE(at::equal(second.gradient, at::zeros({3, 4}))) << "nobody wrote it";
    EXPECT_FALSE(first.is_unwritten.item<bool>() || second.is_unwritten.item<bool>());
  }
}

TEST(Updates, WithoutWritingAllGradientsAreAlwaysSums) {
  ParameterTable table;
  const auto& matrix =
      table.declare({.name = "matrix", .shape = {3, 4}, .decay = true, .multiplied = true});
  table.allocate({});
  EXPECT_FALSE(matrix.is_unwritten.defined());
  matrix.gradient.fill_(3);
  table.forget_gradients();
  table.settle_gradients();
  EXPECT_TRUE(at::equal(matrix.gradient, at::full({3, 4}, 3.0)));
  EXPECT_FALSE(table.groups().front().forgotten);
}

int64_t frozen_in(const ParameterTable& table) {
  int64_t count = 0;
  for (const Segment& segment : table.segments()) count += segment.frozen ? segment.size : 0;
  return count;
}

TEST(Updates, BuffersEndWhereNobodyNeedsThem) {
  SmallModel m;
  EXPECT_EQ(m.table.freeze({"embedding", "expert.*"}), "");
  m.table.allocate({.muon = true, .average = true});
  const auto holds = [](const at::Tensor& flat, const Segment& segment) {
    return segment.offset + segment.size <= flat.numel();
  };
  for (const Segment& segment : m.table.segments()) {
    const bool trained = segment.update != Update::kNone;
    EXPECT_EQ(holds(m.table.gradient(), segment), trained) << segment.name;
    EXPECT_EQ(holds(m.table.first_moment(), segment), trained) << segment.name;
    EXPECT_EQ(holds(m.table.average(), segment), trained) << segment.name;
    EXPECT_EQ(holds(m.table.second_moment(), segment), segment.update == Update::kAdam)
        << segment.name;
    EXPECT_TRUE(holds(m.table.master(), segment)) << segment.name;
  }
  EXPECT_FALSE(m.embedding->gradient.defined());
  EXPECT_FALSE(m.experts->gradient.defined());
  EXPECT_TRUE(m.qkv->gradient.defined());
  EXPECT_EQ(frozen_in(m.table), 40 + 48);
}

TEST(Updates, RangesTogetherHoldAllSegmentsOfTheirOwners) {
  SmallModel m;
  m.table.freeze({"shared.*"});
  m.table.allocate({.muon = true});
  const at::Tensor flat = at::zeros_like(m.table.master());
  for (const auto& range : m.table.ranges(Owner::kShared, Owner::kRouter)) range.of(flat).fill_(1);
  for (const auto& range : m.table.ranges(Owner::kShared, Owner::kRouter, Update::kMuon))
    range.of(flat).add_(1);
  for (const Segment& segment : m.table.segments()) {
    const double expected = segment.owner == Owner::kExpert   ? 0
                            : segment.update == Update::kNone ? 1
                                                              : 2;
    EXPECT_EQ(m.table.view(flat, segment).min().item<double>(), expected) << segment.name;
    EXPECT_EQ(m.table.view(flat, segment).max().item<double>(), expected) << segment.name;
  }
}

TEST(Updates, AStackIsFrozenAsAWhole) {
  SmallModel m;
  EXPECT_EQ(m.table.freeze({"expert.1.*"}), "expert.1.up");
  EXPECT_EQ(frozen_in(m.table), 0);
}

TEST(Updates, TheAverageBeginsAtTheWeights) {
  SmallModel m;
  m.table.freeze({"embedding"});
  m.table.allocate({.average = true});
  m.table.master().fill_(3);
  m.table.copy_master_to_working();
  EXPECT_EQ(m.table.average().min().item<float>(), 3);
  SmallModel without;
  without.table.allocate({});
  EXPECT_FALSE(without.table.average().defined());
}

}  // namespace
}  // namespace ballast::parameters
