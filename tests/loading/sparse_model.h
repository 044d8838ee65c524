// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <vector>

#include "ballast/model/device.h"
#include "ballast/model/language_model.h"
#include "ballast/system/random.h"
#include "ballast/tokens/token_source.h"
#include "tests/support/lone_worker.h"

namespace ballast::test {

// Values of a normal distribution; a function of the name.
inline at::Tensor normal_values(at::IntArrayRef shape, const std::string& name) {
  at::Tensor values = at::empty(shape, at::kDouble);
  RandomStream random(1, name);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.mutable_data_ptr<double>()[i] = random.normal();
  return values;
}

inline config::Config sparse_config(int64_t context = 16) {
  config::Config config;
  config.model = {.vocabulary = 13, .width = 16, .layers = 2, .heads = 2, .context = context};
  config.experts.layers = 2;
  config.experts.count = 4;
  config.experts.sublayers = 2;
  config.training.threads = 1;
  return config;
}

// Makes a fresh model do something: no projection is zero, and experts have prices.
inline void fill_with_opinions(const config::Config& config, parameters::ParameterTable& table,
                               const model::LanguageModel& model, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);  // on a busy machine two that wait for each other take far longer
  table.allocate({.working = dtype, .master = dtype});
  for (const parameters::Segment& segment : table.segments()) {
    const double size = segment.shape.size() == 1 ? 0.1 : 0.4;  // opinions that differ
    at::Tensor values = normal_values(segment.shape, segment.name).mul_(size);
    if (segment.name.find("norm.weight") != std::string::npos) values.add_(1);
    table.view(table.master(), segment).copy_(values);
  }
  for (const auto& layer : model.expert_layers()) {
    if (!config.experts.traits().balanced) continue;  // gates have no prices
    layer->router().prices()->set(normal_values({config.experts.count}, layer->name()).mul_(0.3));
  }
}

// A model with BASE layers that do something.
struct SparseModel {
  explicit SparseModel(const config::Config& wanted = sparse_config(),
                       at::ScalarType dtype = at::kDouble)
      : config(wanted), model(config, table, lone_worker()), place{at::kCPU, dtype, dtype} {
    fill_with_opinions(config, table, model, dtype);
  }

  config::Config config;
  parameters::ParameterTable table;
  model::LanguageModel model;
  model::ComputePlace place;
};

inline std::shared_ptr<tokens::TokenSource> random_tokens(int64_t count, int64_t vocabulary) {
  std::vector<int64_t> ids;
  RandomStream random(1, "tokens");
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(vocabulary))));
  return tokens::tokens_in_memory(ids, {.name = "test", .format = "memory"});
}

}  // namespace ballast::test
