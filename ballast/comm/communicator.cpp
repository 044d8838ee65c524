// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/communicator.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "ballast/comm/tensor_text.h"

namespace ballast::comm {
namespace {

using at::Tensor;

// Fails with "worker 1 of 4: all_to_all (experts, layer 6): " and the message.
class Checks {
 public:
  Checks(const Communicator& group, const char* call, const Label& label)
      : group_(group), call_(call), label_(label) {}

  template <typename... Args>
  void require(bool fits, fmt::format_string<Args...> message, Args&&... args) const {
    if (fits) return;
    fail("worker {} of {}: {}: {}", group_.rank(), group_.size(), describe(call_, label_),
         fmt::format(message, std::forward<Args>(args)...));
  }

  void tensor(const Tensor& x, const char* what) const {
    require(x.defined(), "the {} is undefined", what);
    require(x.is_contiguous(), "the {} {} is not contiguous", what, tensor_text(x));
  }

  void pair(const Tensor& output, const Tensor& input) const {
    tensor(output, "output");
    tensor(input, "input");
    require(output.scalar_type() == input.scalar_type() && output.device() == input.device(),
            "input and output differ in type or device: {} and {}", tensor_text(input),
            tensor_text(output));
  }

  void reducible(const Tensor& x) const {
    constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                         at::kLong,   at::kInt,   at::kByte};
    require(std::ranges::find(kTypes, x.scalar_type()) != std::end(kTypes),
            "{} cannot be reduced; float64, float32, bfloat16, float16, int64, int32, uint8 can",
            tensor_text(x));
  }

  // Except that the input may be the output's elements from `own` on.
  void apart(const Tensor& output, const Tensor& input, int64_t own = -1) const {
    const auto* out = static_cast<const char*>(output.const_data_ptr());
    const auto* in = static_cast<const char*>(input.const_data_ptr());
    if (own >= 0 && in == out + own * static_cast<int64_t>(output.itemsize())) return;
    require(out + output.nbytes() <= in || in + input.nbytes() <= out || output.nbytes() == 0 ||
                input.nbytes() == 0,
            "input and output overlap in memory");
  }

  // The elements of a row, when `x` is `rows` cut along its first dimension.
  int64_t rows(const Tensor& x, const RowsOfWorker& rows, const char* what) const {
    require(std::ssize(rows) == group_.size(), "{} has {} entries, and there are {} workers", what,
            rows.size(), group_.size());
    require(std::ranges::all_of(rows, [](int64_t n) { return n >= 0; }),
            "{} has a negative entry: {}", what, fmt::join(rows, ", "));
    const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    require(x.dim() >= 1 && x.size(0) == total, "{} is {}, in all {}, and the tensor is {}", what,
            fmt::join(rows, ", "), total, tensor_text(x));
    return row_elements(x);
  }

  static int64_t row_elements(const Tensor& x) {
    int64_t elements = 1;
    for (int64_t d = 1; d < x.dim(); ++d) elements *= x.size(d);
    return elements;
  }

 private:
  const Communicator& group_;
  const char* call_;
  const Label& label_;
};

}  // namespace

std::string describe(const char* call, const Label& label) {
  return label.layer < 0 ? fmt::format("{} ({})", call, label.purpose)
                         : fmt::format("{} ({}, layer {})", call, label.purpose, label.layer);
}

Pending::Pending(std::unique_ptr<Operation> operation) : operation_(std::move(operation)) {}

void Pending::wait() {
  if (operation_ == nullptr) return;
  operation_->wait();
  operation_.reset();
}

bool Pending::done() { return operation_ == nullptr || operation_->done(); }

std::string Engine::Call::text() const {
  std::string text = describe(name, label);
  if (from != nullptr) text += " of " + tensor_text(*from);
  if (to != nullptr) text += " to " + tensor_text(*to);
  return text;
}

Communicator::Communicator(int rank, std::vector<int> members, std::string name)
    : rank_(rank),
      members_(std::move(members)),
      size_(static_cast<int>(members_.size())),
      name_(std::move(name)) {}

Engine& Communicator::engine_of(const Tensor& x) {
  if (x.is_cpu() || gpu_engine_ == nullptr) return *this;
  return *gpu_engine_;
}

void Communicator::use_gpu_engine(std::unique_ptr<GpuEngine> engine) {
  gpu_engine_ = std::move(engine);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, const std::string& name) {
  if (color < 0) fail("split into {}: the color is {}, and must not be negative", name, color);
  auto part = start_split(color, key, name);
  if (gpu_engine_ != nullptr) part->use_gpu_engine(gpu_engine_->split(*part));
  return part;
}

Pending Communicator::begin_all_reduce(const Tensor& values, Reduction reduction, Label label) {
  const Checks check(*this, "all_reduce", label);
  check.tensor(values, "tensor");
  check.reducible(values);
  return engine_of(values).start_all_reduce({"all_reduce", label, &values}, values, reduction);
}

Pending Communicator::begin_all_to_all(const Tensor& output, const Tensor& input, Label label) {
  const Checks check(*this, "all_to_all", label);
  check.pair(output, input);
  check.require(output.numel() == input.numel() && input.numel() % size_ == 0,
                "input {} and output {} should have the same number of elements, a multiple of {}",
                tensor_text(input), tensor_text(output), size_);
  check.apart(output, input);
  const Blocks blocks{input.numel() / size_, std::vector<int64_t>(size_, 1)};
  return engine_of(input).start_all_to_all({"all_to_all", label, &input, &output}, output, input,
                                           blocks, blocks);
}

void Communicator::all_reduce(const Tensor& values, Reduction reduction, Label label) {
  begin_all_reduce(values, reduction, label).wait();
}

Pending Communicator::begin_reduce_scatter(const Tensor& output, const Tensor& input,
                                           Reduction reduction, Label label) {
  const Checks check(*this, "reduce_scatter", label);
  check.pair(output, input);
  check.reducible(input);
  check.require(input.numel() == output.numel() * size_,
                "the input {} should have {} times as many elements as the output {}",
                tensor_text(input), size_, tensor_text(output));
  return engine_of(input).start_reduce_scatter({"reduce_scatter", label, &input, &output}, output,
                                               input, reduction);
}

void Communicator::reduce_scatter(const Tensor& output, const Tensor& input, Reduction reduction,
                                  Label label) {
  begin_reduce_scatter(output, input, reduction, label).wait();
}

void Communicator::all_gather(const Tensor& output, const Tensor& input, Label label) {
  const Checks check(*this, "all_gather", label);
  check.pair(output, input);
  check.require(output.numel() == input.numel() * size_,
                "the output {} should have {} times as many elements as the input {}",
                tensor_text(output), size_, tensor_text(input));
  check.apart(output, input, rank_ * input.numel());
  engine_of(input)
      .start_all_gather({"all_gather", label, &input, &output}, output, input,
                        {input.numel(), std::vector<int64_t>(size_, 1)})
      .wait();
}

void Communicator::all_gather_uneven(const Tensor& output, const Tensor& input,
                                     const RowsOfWorker& rows, Label label) {
  const Checks check(*this, "all_gather", label);
  check.pair(output, input);
  const int64_t unit = check.rows(output, rows, "rows");
  check.require(
      input.dim() >= 1 && input.size(0) == rows[rank_] && Checks::row_elements(input) == unit,
      "the input {} does not fit {} rows of the output {}", tensor_text(input), rows[rank_],
      tensor_text(output));
  check.apart(output, input,
              unit * std::accumulate(rows.begin(), rows.begin() + rank_, int64_t{0}));
  engine_of(input)
      .start_all_gather({"all_gather", label, &input, &output}, output, input, {unit, rows})
      .wait();
}

void Communicator::count_seconds(const std::function<void()>& work, Label label) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  all_to_all_seconds_[label.layer] +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

void Communicator::finish_all_to_all(Pending& begun, Label label) {
  count_seconds([&] { begun.wait(); }, label);
}

void Communicator::all_to_all(const Tensor& output, const Tensor& input, Label label) {
  count_seconds([&] { begin_all_to_all(output, input, label).wait(); }, label);
}

void Communicator::all_to_all_uneven(const Tensor& output, const Tensor& input,
                                     const RowsOfWorker& send, const RowsOfWorker& receive,
                                     Label label) {
  const Checks check(*this, "all_to_all", label);
  check.pair(output, input);
  const int64_t unit = check.rows(input, send, "send");
  check.require(unit == check.rows(output, receive, "receive"),
                "rows of the input {} and the output {} differ in size", tensor_text(input),
                tensor_text(output));
  check.require(send[rank_] == receive[rank_],
                "{} rows are for this worker itself, and it receives {} from itself", send[rank_],
                receive[rank_]);
  check.apart(output, input);
  const Call call{"all_to_all", label, &input, &output};
  count_seconds(
      [&] {
        engine_of(input)
            .start_all_to_all(call, output, input, {unit, send}, {unit, receive})
            .wait();
      },
      label);
}

void Communicator::broadcast(const Tensor& values, int root, Label label) {
  const Checks check(*this, "broadcast", label);
  check.tensor(values, "tensor");
  check.require(root >= 0 && root < size_, "there is no worker {} to broadcast from", root);
  engine_of(values).start_broadcast({"broadcast", label, &values}, values, root).wait();
}

void Communicator::barrier(Label label) { start_barrier({"barrier", label}).wait(); }

void Communicator::record(const std::function<void()>& work, Label label) {
  if (gpu_engine_ == nullptr) return work();
  const auto before = all_to_all_seconds_;
  const auto forget_seconds = [&] { all_to_all_seconds_ = before; };  // nothing was sent
  try {
    gpu_engine_->record({"recording", label}, work);
  } catch (...) {
    forget_seconds();
    throw;
  }
  forget_seconds();
}

void Communicator::replay(const std::function<void()>& work, Label label) {
  if (gpu_engine_ == nullptr) return work();
  gpu_engine_->replay({"replay", label}, work);
}

double Communicator::take_all_to_all_seconds(int layer) {
  return std::exchange(all_to_all_seconds_[layer], 0);
}

}  // namespace ballast::comm
