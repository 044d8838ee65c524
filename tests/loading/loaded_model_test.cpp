// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/loaded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/loading/weights.h"
#include "tests/loading/sparse_model.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::loading {
namespace {

using test::SparseModel;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A checkpoint of the model in `run`, without the tensors whose names begin with `without`, and
// with `config` as that of its run.
void save(const SparseModel& m, const fs::path& run, const std::string& without,
          const config::Config& config) {
  at::Tensor host;
  std::vector<checkpoint::TensorView> views = segment_views(m.table, m.table.master(), {}, host);
  std::ranges::move(price_views(m.model), std::back_inserter(views));
  if (!without.empty())
    std::erase_if(
        views, [&](const checkpoint::TensorView& view) { return view.name.starts_with(without); });
  make_folder(run / "checkpoints");
  checkpoint::CheckpointWriter writer(run / "checkpoints", 7);
  checkpoint::Manifest manifest;
  manifest.step = 7;
  manifest.config = config::to_toml(config);
  manifest.tensors =
      checkpoint::write_checkpoint_file({writer.folder(), 7}, "model.safetensors", views);
  writer.commit(manifest);
}

void save(const SparseModel& m, const fs::path& run, const std::string& without = "") {
  save(m, run, without, m.config);
}

LoadRequest request_of(const fs::path& run) {
  return {.path = run,
          .device = config::DeviceChoice::kCpu,
          .precision = config::Precision::kFp64,
          .tokenizer = ""};
}

TEST(LoadedModel, ComputesWhatTheSavedOneDid) {
  const at::NoGradGuard no_grad;
  const TemporaryFolder folder;
  const SparseModel m;
  save(m, folder.path());
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  const auto loaded = load_model(request_of(folder.path()), *world);
  EXPECT_EQ(loaded->step, 7U);
  EXPECT_EQ(loaded->tokenizer, nullptr);
  const at::Tensor tokens = at::arange(13, at::kLong).unsqueeze(0);
  for (const experts::RoutingMode mode :
       {experts::RoutingMode::kGreedy, experts::RoutingMode::kPriced}) {
    EXPECT_TRUE(at::equal(loaded->model->forward(tokens, {.mode = mode}),
                          m.model.forward(tokens, {.mode = mode})))
        << experts::routing_name(mode);
  }
}

TEST(LoadedModel, ACheckpointThatLacksAnExpertIsRefusedByName) {
  const TemporaryFolder folder;
  const SparseModel m;
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  const auto error_without = [&](const std::string& name) {
    const fs::path run = folder / name;
    save(m, run, name);
    return test::error_of([&] { load_model(request_of(run), *world); });
  };
  EXPECT_THAT(error_without("layer.1.expert.2."),
              AllOf(HasSubstr("lacks expert 2 of layer.1"), HasSubstr("step_00000007")));
  EXPECT_THAT(error_without("layer.0.expert."), HasSubstr("experts 0, 1, 2, 3 of layer.0"));
  EXPECT_THAT(error_without("layer.1.prices"), HasSubstr("layer.1.prices"));
  EXPECT_THAT(error_without("block.0.attention"), HasSubstr("block.0.attention"));
}

// Before memory for it is asked for, which no machine has.
TEST(LoadedModel, AConfigOfAnotherModelIsRefused) {
  const SparseModel m;
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  const auto error_with = [&](const std::string& knob, const std::string& value) {
    const TemporaryFolder folder;
    config::Config config = m.config;
    config::set_knob(config, knob, value);
    save(m, folder.path(), "", config);
    return test::error_of([&] { load_model(request_of(folder.path()), *world); });
  };
  EXPECT_THAT(error_with("model.width", "1048576"), HasSubstr("its config was changed"));
  EXPECT_THAT(error_with("model.vocabulary", "16777216"), HasSubstr("its config was changed"));
  EXPECT_THAT(error_with("model.context", "1048576"), HasSubstr("its config was changed"));
  EXPECT_THAT(error_with("experts.sublayers", "10000"), HasSubstr("its config was changed"));
  EXPECT_THAT(error_with("model.hidden", "1000"), HasSubstr("but the model wants"));
  EXPECT_THAT(error_with("model.heads", "7"), HasSubstr("model.heads"));
}

TEST(LoadedModel, WeightsThatAreNotFiniteAreRefusedByName) {
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  for (const double bad : {NAN, INFINITY, -INFINITY}) {
    const TemporaryFolder folder;
    const SparseModel m;
    const parameters::Segment& segment = m.table.segment("block.0.attention.norm.weight");
    m.table.view(m.table.master(), segment)[1].fill_(bad);
    save(m, folder.path());
    EXPECT_THAT(test::error_of([&] { load_model(request_of(folder.path()), *world); }),
                AllOf(HasSubstr("block.0.attention.norm.weight"), HasSubstr("not finite"),
                      HasSubstr("step_00000007")));
  }
}

TEST(LoadedModel, ARunWithoutACheckpointIsRefused) {
  const TemporaryFolder folder;
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  EXPECT_THAT(test::error_of([&] { load_model(request_of(folder / "nowhere"), *world); }),
              HasSubstr("nowhere"));
}

}  // namespace
}  // namespace ballast::loading
