// SPDX-License-Identifier: Apache-2.0
// logits_tool MODEL LOGITS < {"tokens": [...], "continue": N}: the model's logits of these tokens,
// in fp32, to the file LOGITS as raw numbers [T, V], and its greedy continuation to stdout, as
// JSON.
#include <fmt/format.h>
#include <torch/types.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ballast/experts/routing.h"
#include "ballast/inference/generate.h"
#include "ballast/loading/loaded_model.h"
#include "ballast/system/json.h"

namespace ballast::inference {
namespace {

experts::RoutingMode tested_routing(const config::Config& config) {
  if (config.experts.layers == 0) return experts::RoutingMode::kGreedy;
  return experts::parse_routing_mode(config::name_of(config.experts.tested_routing()));
}

void run(const char* model, const char* file) {
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  const auto loaded = loading::load_model(
      {.path = model, .device = config::DeviceChoice::kCpu, .precision = config::Precision::kFp32},
      *world);
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const auto request = parse_json(text);
  const auto ids = request.at("tokens").get<std::vector<tokenizer::TokenId>>();
  const experts::RoutingMode mode = tested_routing(loaded->config);

  const std::vector<int64_t> wide(ids.begin(), ids.end());
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = torch::tensor(wide).unsqueeze(0);
  const at::Tensor hidden = loaded->model->forward(tokens, {.mode = mode});
  const at::Tensor logits = loaded->model->logits(hidden).to(at::kFloat).contiguous();
  std::ofstream out(file, std::ios::binary);
  out.write(static_cast<const char*>(logits.const_data_ptr()),
            static_cast<std::streamsize>(logits.nbytes()));

  GenerationOptions options{.max_tokens = request.at("continue").get<int64_t>(),
                            .routing = mode,
                            .stop_at_end_of_text = false};
  options.sampling.temperature = 0;
  const auto written = generate(*loaded->model, loaded->place, 0, {ids}, options);
  fmt::print("{}\n", nlohmann::json(written.front()).dump());
}

}  // namespace
}  // namespace ballast::inference

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "logits_tool MODEL LOGITS\n");
    return 2;
  }
  try {
    ballast::inference::run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
