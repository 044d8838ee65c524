// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ballast/experts/expert_layer.h"

namespace ballast::test {

// Keeps assignments in memory, group by group.
class MemoryTape : public experts::RouteTape {
 public:
  at::Tensor replay(const Key& key, int64_t groups) override {
    std::vector<at::Tensor> parts;
    for (int64_t group = key.first_group; group < key.first_group + groups; ++group) {
      const auto found = kept.find({key.step, key.micro_step, key.layer, group});
      if (found == kept.end()) return {};
      parts.push_back(found->second);
    }
    ++replayed;
    return at::stack(parts);
  }
  void record(const Key& key, const at::Tensor& expert_of_token) override {
    for (int64_t i = 0; i < expert_of_token.size(0); ++i)
      kept[{key.step, key.micro_step, key.layer, key.first_group + i}] = expert_of_token[i].clone();
  }

  std::map<std::tuple<uint64_t, uint64_t, int64_t, int64_t>, at::Tensor> kept;
  int64_t replayed = 0;
};

struct LayerShape {
  int64_t experts = 4, groups = 2, tokens = 32;  // tokens: of all workers
  bool shuffle = true;
  const char* solver = "exact";
  const char* router = "base";
  double capacity = -1, balance_weight = 0.01;
  const char* second_expert = "always";
  int64_t sublayers = 2;
  std::function<void(config::ExpertsConfig&)> frame = config::take_papers_frame;
};

constexpr int64_t kWidth = 8;

inline parameters::TableOptions double_on_cpu() {
  return {.working = at::kDouble, .master = at::kDouble};
}

// A layer of experts, its zero projections randomised.
struct Layer {
  Layer(const LayerShape& shape, comm::Communicator& workers,
        const parameters::TableOptions& options = double_on_cpu(),
        std::shared_ptr<const comm::MachineHops> hops = nullptr)
      : shape(shape), layer(config_of(shape), 1, table, workers, std::move(hops)) {
    table.allocate(options);
    table.initialize(7);
    randomise();
  }

  static config::Config config_of(const LayerShape& shape) {
    config::Config config;
    config.model = {.vocabulary = 11, .width = kWidth, .layers = 2, .heads = 2, .hidden = 16};
    config.experts.layers = 1;
    config.experts.count = shape.experts;
    config.experts.sublayers = shape.sublayers;
    config.experts.groups = shape.groups;
    config.experts.solver = config::choice_of<config::TrainingSolver>(shape.solver);
    config.experts.router = shape.router;
    config.experts.capacity = shape.capacity;
    config.experts.balance_weight = shape.balance_weight;
    config.experts.second_expert = config::choice_of<config::SecondExpert>(shape.second_expert);
    config.experts.assignment_gap = 0;  // on a GPU as on the CPU
    config.experts.self_check = true;
    shape.frame(config.experts);
    return config;
  }

  // Each parameter by its name: the same on any number of workers.
  void randomise() {
    for (const parameters::Segment& segment : table.segments()) {
      at::manual_seed(std::hash<std::string>()(segment.name));
      const at::Tensor noise =
          at::randn(segment.shape, at::kDouble) * (segment.shape.size() > 1 ? 0.4 : 0.2);
      table.view(table.master(), segment).add_(noise.to(table.master().options()));
    }
    table.copy_master_to_working();
  }

  experts::Routing routing(experts::RouteTape* tape = nullptr) const {
    return {.mode = experts::RoutingMode::kBalanced,
            .training = experts::TrainingRoute{.groups = shape.groups,
                                               .shuffle = shape.shuffle,
                                               .seed = 3,
                                               .step = 5,
                                               .micro_step = 1,
                                               .micro_steps = 2},
            .tape = tape};
  }

  at::Tensor gradient(const std::string& name) const {
    return table.view(table.gradient(), table.segment(name));
  }

  LayerShape shape;
  parameters::ParameterTable table;
  experts::ExpertLayer layer;
};

// The tokens of all workers, and a direction to take the gradient in.
inline at::Tensor random_rows(int64_t rows, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({rows, kWidth}, at::kDouble);
}

}  // namespace ballast::test
