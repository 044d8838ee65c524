// SPDX-License-Identifier: Apache-2.0
// A BASE layer within a small model made of torch::nn modules, trained by an optimizer of libtorch.
//
// The task: there are 8 codes, and each replaces the 16 letters in an order of its own. The model
// sees a code and a letter, and names what the letter becomes.
#include <torch/torch.h>

#include <cstdio>
#include <memory>
#include <tuple>

#include "ballast/comm/single.h"
#include "ballast/experts/expert_layer.h"
#include "ballast/parameters/parameter_table.h"

namespace {

using torch::Tensor;
constexpr int64_t kCodes = 8, kLetters = 16, kWidth = 32, kExperts = 4, kTokens = 256;

ballast::config::Config config_of_layer() {
  ballast::config::Config config;
  config.model.width = kWidth;
  config.model.hidden = 64;
  config.experts.layers = 1;
  config.experts.count = kExperts;
  config.experts.sublayers = 1;
  return config;
}

// The layer as a module: all its weights are one flat tensor, and its backward pass adds to the
// gradient beside it. Autograd need not know of either.
class ExpertsImpl : public torch::nn::Module {
 public:
  ExpertsImpl()
      : alone_(ballast::comm::open_single_group("alone", 0)),
        layer_(config_of_layer(), 1, table_, *alone_) {
    table_.allocate({});
    table_.initialize(/*seed=*/1);
    Tensor weights = register_parameter("weights", table_.working(), /*requires_grad=*/false);
    weights.mutable_grad() = table_.gradient();
  }

  // Tokens [T, kWidth], which need gradients, since the way back begins there. In training every
  // expert gets T / kExperts of them; else each token goes to the expert it likes best.
  Tensor forward(const Tensor& tokens) {
    using ballast::experts::RoutingMode;
    if (!is_training()) return layer_.forward(tokens, {.mode = RoutingMode::kGreedy});
    layer_.router().take_stats();  // of the last step; they would pile up
    return layer_.forward(
        tokens, {.mode = RoutingMode::kBalanced, .training = ballast::experts::TrainingRoute{}});
  }

 private:
  ballast::parameters::ParameterTable table_;
  std::unique_ptr<ballast::comm::Communicator> alone_;
  ballast::experts::ExpertLayer layer_;
};
TORCH_MODULE(Experts);

struct ModelImpl : torch::nn::Module {
  torch::nn::Embedding codes{register_module("codes", torch::nn::Embedding(kCodes, kWidth))};
  torch::nn::Embedding letters{register_module("letters", torch::nn::Embedding(kLetters, kWidth))};
  Experts experts{register_module("experts", Experts())};
  torch::nn::Linear output{register_module("output", torch::nn::Linear(kWidth, kLetters))};

  Tensor forward(const Tensor& code, const Tensor& letter) {
    return output(experts(codes(code) + letters(letter)));  // [T, kLetters]
  }
};
TORCH_MODULE(Model);

}  // namespace

int main() {
  torch::manual_seed(1);
  // [kCodes, kLetters], each row an order of its own.
  const Tensor becomes = std::get<1>(torch::rand({kCodes, kLetters}).sort(1));
  Model model;
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.005));

  double sum = 0;
  for (int step = 1; step <= 200; ++step) {
    const Tensor code = torch::randint(kCodes, {kTokens}, torch::kLong);
    const Tensor letter = torch::randint(kLetters, {kTokens}, torch::kLong);
    const Tensor loss =
        torch::cross_entropy_loss(model(code, letter), becomes.index({code, letter}));
    optimizer.zero_grad(/*set_to_none=*/false);  // the layer's gradient keeps its place
    loss.backward();
    optimizer.step();
    sum += loss.item<double>();
    if (step % 40 == 0) {
      std::printf("step %3d | loss %.4f, the mean of 40 steps\n", step, sum / 40);
      sum = 0;
    }
  }

  model->eval();
  const torch::NoGradGuard no_grad;
  const Tensor code = torch::arange(kCodes).repeat_interleave(kLetters);
  const Tensor letter = torch::arange(kLetters).repeat(kCodes);
  const Tensor right = model(code, letter).argmax(1) == becomes.flatten();
  std::printf("right: %lld of %lld\n", static_cast<long long>(right.sum().item<int64_t>()),
              static_cast<long long>(kCodes * kLetters));
}
