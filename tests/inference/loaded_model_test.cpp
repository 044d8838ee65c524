// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/loaded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/inference/weights.h"
#include "tests/inference/sparse_model.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast {
namespace {

using test::SparseModel;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A checkpoint of the model in `run`, without the tensors whose names begin with `without`.
void save(const SparseModel& m, const fs::path& run, const std::string& without = "") {
  at::Tensor host;
  std::vector<TensorView> views = segment_views(m.table, m.table.master(), {}, host);
  std::ranges::move(price_views(m.model), std::back_inserter(views));
  if (!without.empty())
    std::erase_if(views, [&](const TensorView& view) { return view.name.starts_with(without); });
  make_folder(run / "checkpoints");
  CheckpointWriter writer(run / "checkpoints", 7);
  Manifest manifest;
  manifest.step = 7;
  manifest.config = to_toml(m.config);
  manifest.tensors = writer.write_file("model.safetensors", views);
  writer.commit(manifest);
}

LoadRequest request_of(const fs::path& run) {
  return {.path = run, .device = "cpu", .precision = "fp64", .tokenizer = ""};
}

TEST(LoadedModel, ComputesWhatTheSavedOneDid) {
  const at::NoGradGuard no_grad;
  const TemporaryFolder folder;
  const SparseModel m;
  save(m, folder.path());
  const auto world = open_world({.kind = WorldKind::kSingle});
  const auto loaded = load_model(request_of(folder.path()), *world);
  EXPECT_EQ(loaded->step, 7U);
  EXPECT_EQ(loaded->tokenizer, nullptr);
  const at::Tensor tokens = at::arange(13, at::kLong).unsqueeze(0);
  for (const RoutingMode mode : {RoutingMode::kGreedy, RoutingMode::kPriced}) {
    EXPECT_TRUE(at::equal(loaded->model->forward(tokens, {.mode = mode}),
                          m.model.forward(tokens, {.mode = mode})))
        << routing_name(mode);
  }
}

TEST(LoadedModel, ACheckpointThatLacksAnExpertIsRefusedByName) {
  const TemporaryFolder folder;
  const SparseModel m;
  const auto world = open_world({.kind = WorldKind::kSingle});
  const auto error_without = [&](const std::string& name) {
    const fs::path run = folder / name;
    save(m, run, name);
    return error_of([&] { load_model(request_of(run), *world); });
  };
  EXPECT_THAT(error_without("layer.1.expert.2."),
              AllOf(HasSubstr("lacks expert 2 of layer.1"), HasSubstr("step_00000007")));
  EXPECT_THAT(error_without("layer.0.expert."), HasSubstr("experts 0, 1, 2, 3 of layer.0"));
  EXPECT_THAT(error_without("layer.1.prices"), HasSubstr("layer.1.prices"));
  EXPECT_THAT(error_without("block.0.attention"), HasSubstr("block.0.attention"));
}

TEST(LoadedModel, ARunWithoutACheckpointIsRefused) {
  const TemporaryFolder folder;
  const auto world = open_world({.kind = WorldKind::kSingle});
  EXPECT_THAT(error_of([&] { load_model(request_of(folder / "nowhere"), *world); }),
              HasSubstr("nowhere"));
}

}  // namespace
}  // namespace ballast
