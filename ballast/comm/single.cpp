// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/single.h"

#include <ATen/core/grad_mode.h>

#include "ballast/system/error.h"

namespace ballast {
namespace {

using at::Tensor;

class SingleCommunicator : public Communicator {
 public:
  explicit SingleCommunicator(const std::string& name) : Communicator(0, 1, name) {}

  std::unique_ptr<Communicator> split(int color, int /*key*/, const std::string& name) override {
    if (color < 0) fail("split into {}: the color is {}, and must not be negative", name, color);
    return std::make_unique<SingleCommunicator>(name);
  }

 protected:
  Pending start_all_reduce(const Call&, const Tensor&, Reduction) override { return {}; }
  Pending start_reduce_scatter(const Call&, const Tensor& output, const Tensor& input,
                               Reduction) override {
    return copy(output, input);
  }
  Pending start_all_gather(const Call&, const Tensor& output, const Tensor& input,
                           Blocks) override {
    return copy(output, input);
  }
  Pending start_all_to_all(const Call&, const Tensor& output, const Tensor& input, Blocks,
                           Blocks) override {
    return copy(output, input);
  }
  Pending start_broadcast(const Call&, const Tensor&, int) override { return {}; }
  Pending start_barrier(const Call&) override { return {}; }

 private:
  // Shapes may differ where the number of elements does not.
  static Pending copy(const Tensor& output, const Tensor& input) {
    const at::NoGradGuard no_grad;
    if (output.const_data_ptr() != input.const_data_ptr())
      output.view({-1}).copy_(input.view({-1}), /*non_blocking=*/true);
    return {};
  }
};

class SingleWorld : public World {
 public:
  Communicator& everyone() override { return everyone_; }
  PlaceOnMachine place() const override { return {}; }
  void close() override {}
  void abort(int /*code*/) noexcept override {}

 private:
  SingleCommunicator everyone_{"all workers"};
};

}  // namespace

std::unique_ptr<World> open_single_world() { return std::make_unique<SingleWorld>(); }

}  // namespace ballast
