// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/single.h"

#include <ATen/core/grad_mode.h>

#include "ballast/comm/roll_call.h"

namespace ballast::comm {
namespace {

using at::Tensor;

class SingleCommunicator : public Communicator {
 public:
  SingleCommunicator(const std::string& name, int worker) : Communicator(0, {worker}, name) {}

 protected:
  std::unique_ptr<Communicator> start_split(int, int, const std::string& name) override {
    return std::make_unique<SingleCommunicator>(name, members().front());
  }
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
  bool leaves_out_the_host() const override { return true; }

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
  explicit SingleWorld(const WorldOptions& options)
      : World(options.gpus, "nowhere"),
        roll_call_(std::make_shared<RollCall>(0, 1, options.deadline_seconds)) {}

  Communicator& everyone() override { return everyone_; }
  PlaceOnMachine place() const override { return {}; }
  void abort(int /*code*/) noexcept override {}

 protected:
  void close_host() override {}
  std::shared_ptr<RollCall> roll_call() override { return roll_call_; }

 private:
  std::shared_ptr<RollCall> roll_call_;
  SingleCommunicator everyone_{"all workers", 0};
};

}  // namespace

std::unique_ptr<World> open_single_world(const WorldOptions& options) {
  return std::make_unique<SingleWorld>(options);
}

std::unique_ptr<Communicator> open_single_group(const std::string& name, int worker) {
  return std::make_unique<SingleCommunicator>(name, worker);
}

}  // namespace ballast::comm
