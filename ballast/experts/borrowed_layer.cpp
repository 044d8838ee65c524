// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/borrowed_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>
#include <utility>

#include "ballast/system/error.h"

namespace ballast::experts {

using at::Tensor;

// Gives one pass the experts to use again, or keeps those that it chose.
class BorrowedLayer::Tape : public RouteTape {
 public:
  explicit Tape(Tensor experts) : experts_(std::move(experts)) {}
  Tensor replay(const Key&, int64_t) override { return experts_; }
  void record(const Key&, const Tensor& expert_of_token) override { experts_ = expert_of_token; }
  const Tensor& experts() const { return experts_; }

 private:
  Tensor experts_;
};

BorrowedLayer::BorrowedLayer(const config::Config& config, int64_t place,
                             std::shared_ptr<comm::Communicator> workers)
    : config_(config), workers_(std::move(workers)), layer_(config, place, table_, *workers_) {}

int64_t BorrowedLayer::groups_of_worker() const {
  return config_.experts.groups > 0 ? config_.experts.groups / workers_->size() : 1;
}

TrainingRoute BorrowedLayer::training_route(int64_t step) const {
  return {.groups = groups_of_worker() * workers_->size(),
          .shuffle = config_.experts.shuffle,
          .seed = static_cast<uint64_t>(config_.training.seed),
          .step = static_cast<uint64_t>(step),
          .averaged = workers_->size()};
}

void BorrowedLayer::adopt(const Arguments& arguments) {
  const auto entries = table_.entries();
  if (arguments.parameters.size() != entries.size())
    fail("a layer with {} parameters was given {}", entries.size(), arguments.parameters.size());
  parameters_.clear();
  for (size_t i = 0; i < entries.size(); ++i) {
    kernels::Parameter parameter{.value = arguments.parameters[i].detach().contiguous(),
                                 .gradient = {}};
    // The way back writes the experts' matrices and adds to everything else.
    const bool is_written = entries[i].stacked && parameter.value.dim() > 2;
    if (arguments.keeps_graph)
      parameter.gradient =
          is_written ? at::empty_like(parameter.value) : at::zeros_like(parameter.value);
    parameters_.push_back(std::move(parameter));
  }
  table_.adopt(parameters_);
  if (PriceAverage* const prices = layer_.router().prices(); prices != nullptr)
    prices->borrow(arguments.prices);
}

BorrowedLayer::Result BorrowedLayer::forward(const Arguments& arguments) {
  adopt(arguments);
  tokens_ = arguments.tokens.detach().requires_grad_(arguments.keeps_graph);
  earlier_ = arguments.earlier.defined()
                 ? arguments.earlier.detach().requires_grad_(arguments.keeps_graph)
                 : Tensor();
  Tape tape(arguments.experts);
  Tensor seen;
  const at::AutoGradMode with_graph(arguments.keeps_graph);
  output_ = layer_.forward(tokens_,
                           {.mode = arguments.mode,
                            .training = arguments.training,
                            .seen = [&](const SeenRoute& route) { seen = route.expert_of_token; },
                            .tape = arguments.training ? &tape : nullptr,
                            .gradients = MatrixGradients::kWritten},
                           earlier_);
  const at::NoGradGuard no_grad;
  Result result{
      .output = output_.detach(),
      .chosen = arguments.training ? tape.experts().to(at::kInt) : seen.to(at::kInt).unsqueeze(0),
      .prices = mean_prices(tokens_)};
  if (!arguments.keeps_graph) let_go();
  return result;
}

void BorrowedLayer::let_go() {
  output_ = tokens_ = earlier_ = Tensor();
  parameters_.clear();
  table_.adopt(std::vector<kernels::Parameter>(table_.entries().size()));
  if (PriceAverage* const prices = layer_.router().prices(); prices != nullptr)
    prices->borrow(Tensor());
}

Tensor BorrowedLayer::mean_prices(const Tensor& like) {
  const RoutingStats stats = layer_.router().take_stats();
  const Tensor none = at::empty({0}, like.options().dtype(at::kDouble));
  if (layer_.router().prices() == nullptr || !stats.sums.defined() || stats.statuses.empty())
    return none;
  Tensor sums = stats.sums.clone();
  workers_->all_reduce(sums, comm::Reduction::kSum, {"prices", static_cast<int>(layer_.place())});
  return sums.narrow(0, kRoutingSums, layer_.experts()) / sums[kSumOfGroups];
}

BorrowedLayer::Gradients BorrowedLayer::backward(const Tensor& gradient) {
  if (!output_.defined())
    throw std::logic_error("BorrowedLayer::backward without a forward that kept its graph");
  const bool reads_earlier = earlier_.defined();
  std::vector<Tensor> inputs = {tokens_};
  if (reads_earlier) inputs.push_back(earlier_);
  auto found = torch::autograd::grad({std::exchange(output_, Tensor())}, inputs,
                                     {gradient.contiguous()}, /*retain_graph=*/false,
                                     /*create_graph=*/false, /*allow_unused=*/true);
  const at::NoGradGuard no_grad;
  const auto given = [](const Tensor& found, const Tensor& input) {
    return found.defined() ? found : at::zeros_like(input);
  };
  Gradients result{.tokens = given(found[0], tokens_),
                   .earlier = reads_earlier ? given(found[1], earlier_) : Tensor(),
                   .parameters = {}};
  const auto entries = table_.entries();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& sum = parameters_[i].gradient;
    if (workers_->size() > 1 && entries[i].first.owner == parameters::Owner::kExpert)
      sum.div_(static_cast<double>(workers_->size()));
    result.parameters.push_back(std::move(sum));
  }
  let_go();
  return result;
}

}  // namespace ballast::experts
