// SPDX-License-Identifier: Apache-2.0
// training_tool OUT KEY=VALUE...: trains with these knobs, and writes what another program needs to
// do the same: {steps: [{loss, inputs, targets, experts: of each layer}]} to OUT/steps.json, the
// first weights to OUT, a checkpoint.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/comm/world.h"
#include "ballast/training/trainer.h"
#include "ballast/training/training_data.h"
#include "ballast/training/training_state.h"

namespace ballast::training {
namespace {

using nlohmann::json;

// Keeps the experts of a step's layers, in their order.
class Recorder : public experts::RouteTape {
 public:
  at::Tensor replay(const Key&, int64_t) override { return {}; }
  void record(const Key&, const at::Tensor& expert_of_token) override {
    const at::Tensor experts = expert_of_token.cpu().contiguous();
    const auto* data = experts.const_data_ptr<int32_t>();
    json rows = json::array();
    for (int64_t group = 0; group < experts.size(0); ++group, data += experts.size(1))
      rows.push_back(std::vector<int32_t>(data, data + experts.size(1)));
    seen_.push_back(std::move(rows));
  }
  json take() { return std::exchange(seen_, json::array()); }

 private:
  json seen_ = json::array();
};

void run(const std::filesystem::path& folder, const std::vector<std::string>& knobs) {
  config::Config config;
  for (const std::string& knob : knobs) {
    const size_t equals = knob.find('=');
    config::set_knob(config, knob.substr(0, equals), knob.substr(equals + 1));
  }
  config::check_config(config);
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  TrainingData data = open_training_data(config.data, folder / "builtin");
  fit_vocabulary(config.model, data);
  if (config.experts.groups == 0) config.experts.groups = 1;
  const comm::WorkerGrid grid(world->everyone(), 1);
  const model::ComputePlace place = model::choose_place({.device = config::DeviceChoice::kCpu,
                                                         .precision = config.training.precision,
                                                         .threads = config.training.threads});
  Trainer trainer(config, place, data.train, grid);
  save_training(folder, {config, trainer.model(), trainer.table(), trainer.state()}, grid);
  Recorder recorder;
  trainer.use_tape(&recorder);
  json steps = json::array();
  for (int64_t step = 0; step < config.training.steps; ++step) {
    const batches::Batch batch = trainer.batches().at(static_cast<uint64_t>(step), 0, 0, 1);
    const double loss = trainer.step().loss;
    steps.push_back({{"loss", loss},
                     {"inputs", batch.inputs},
                     {"targets", batch.targets},
                     {"experts", recorder.take()}});
  }
  std::ofstream(folder / "steps.json") << json{{"steps", steps}};
}

}  // namespace
}  // namespace ballast::training

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "training_tool OUT KEY=VALUE...\n");
    return 2;
  }
  try {
    ballast::training::run(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
