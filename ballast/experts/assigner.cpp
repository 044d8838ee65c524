// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/assigner.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "ballast/kernels/optional_tensor.h"
#include "ballast/system/error.h"

namespace ballast::experts {

assignment::ScoreType score_type_of(const at::Tensor& scores) {
  switch (scores.scalar_type()) {
    case at::kFloat:
      return assignment::ScoreType::kFloat32;
    case at::kBFloat16:
      return assignment::ScoreType::kBFloat16;
    case at::kHalf:
      return assignment::ScoreType::kFloat16;
    default:
      fail("scores of type {}: want float32, bfloat16 or float16",
           c10::toString(scores.scalar_type()));
  }
}

namespace {

using assignment::AssignmentStatus;
using at::Tensor;
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
using kernels::OptionalTensor;

// Shapes as people read them.
std::string shape_of(const Tensor& tensor) {
  std::string text = "[";
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    text += (d > 0 ? ", " : "") + std::to_string(tensor.size(d));
  }
  return text + "]";
}

// `tensor` as [problems, size] on the scores' device, from [size], which all share, or [problems,
// size]; rows are contiguous.
Tensor matching(const Tensor& tensor, const Tensor& scores, int64_t size, const char* what) {
  if (tensor.device() != scores.device()) {
    fail("{} are on {}, but scores are on {}", what, tensor.device().str(), scores.device().str());
  }
  const bool fits =
      (tensor.dim() == 1 || (tensor.dim() == 2 && tensor.size(0) == scores.size(0))) &&
      tensor.size(-1) == size;
  if (!fits) {
    fail("{} of shape {} do not fit scores of shape {}", what, shape_of(tensor), shape_of(scores));
  }
  if (tensor.dim() == 1) return tensor.contiguous().unsqueeze(0).expand({scores.size(0), size});
  return tensor.contiguous();
}

// Inputs checked and brought to [P, T] uint8, contiguous, and [P, E] float64; `scores` is [P, T,
// E].
AssignInputs checked(const AssignInputs& inputs, const Tensor& scores) {
  AssignInputs result;
  if (inputs.counted.defined()) {
    const at::ScalarType type = inputs.counted.scalar_type();
    if (type != at::kBool && type != at::kByte) {
      fail("a mask of type {}: want bool or uint8", c10::toString(type));
    }
    result.counted =
        matching(inputs.counted, scores, scores.size(1), "masks").contiguous().view(at::kByte);
  }
  if (inputs.start_prices.defined()) {
    if (inputs.start_prices.scalar_type() != at::kDouble) {
      fail("start prices of type {}: want float64",
           c10::toString(inputs.start_prices.scalar_type()));
    }
    result.start_prices = matching(inputs.start_prices, scores, scores.size(2), "start prices");
  }
  return result;
}

TensorAssignment named(const Results& results) {
  const auto& [experts, order, places, loads, prices, status] = results;
  return {.expert_of_token = experts,
          .tokens_by_expert = order,
          .place_of_token = places,
          .loads = loads,
          .prices = prices,
          .status = status};
}

AssignmentStatus status_of(const assignment::Assignment& result) {
  const assignment::Certificate& certificate = result.certificate;
  return {.valid = certificate.valid ? 1 : 0,
          .replaced = result.replaced_scores,
          .primal = certificate.primal,
          .dual = certificate.dual,
          .gap = certificate.gap,
          .blind = certificate.blind};
}

template <typename T>
void copy_row(const std::vector<T>& values, const Tensor& rows, int64_t row) {
  std::copy(values.begin(), values.end(), rows.data_ptr<T>() + row * rows.size(1));
}

std::string problem_name(int64_t problem, int64_t problems) {
  return problems > 1 ? fmt::format("problem {}: ", problem) : "";
}

// Whether bounds say no more than none would.
bool are_equal_loads(const assignment::LoadBounds& bounds, int64_t tokens, int64_t experts) {
  const auto all = [&](const std::vector<int32_t>& loads) {
    return std::ranges::all_of(loads, [&](int32_t load) { return load * experts == tokens; });
  };
  return all(bounds.lower) && all(bounds.upper);
}

Tensor on_device(const std::vector<int32_t>& values, const Tensor& scores) {
  if (values.empty()) return {};
  auto* data = const_cast<int32_t*>(values.data());  // from_blob takes no const
  const auto size = static_cast<int64_t>(values.size());
  return at::from_blob(data, {size}, at::TensorOptions().dtype(at::kInt)).to(scores.device());
}

// The CPU's part of the op. The solver's memory is the call's own; Assigner keeps it.
Results assign_cpu(const Tensor& scores, const OptionalTensor& counted,
                   const OptionalTensor& start_prices, const OptionalTensor& lower,
                   const OptionalTensor& upper, const Tensor& /*workspace*/, int64_t solver,
                   int64_t non_finite, double /*gap*/, int64_t /*max_work*/) {
  AssignOptions options{.solver = static_cast<assignment::SolverKind>(solver),
                        .non_finite = static_cast<assignment::NonFinite>(non_finite)};
  const auto list = [](const Tensor& bound) {
    const Tensor values = bound.to(at::kInt).contiguous();
    return std::vector<int32_t>(values.data_ptr<int32_t>(),
                                values.data_ptr<int32_t>() + values.numel());
  };
  if (lower) options.bounds.lower = list(*lower);
  if (upper) options.bounds.upper = list(*upper);
  const TensorAssignment result =
      Assigner(std::move(options))
          .assign(scores, {.counted = counted.value_or(Tensor()),
                           .start_prices = start_prices.value_or(Tensor())});
  return {result.expert_of_token, result.tokens_by_expert, result.place_of_token,
          result.loads,           result.prices,           result.status};
}

int64_t assign_workspace_cpu(const Tensor&, int64_t, double) { return 0; }

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "assign(Tensor scores, Tensor? counted, Tensor? start_prices, Tensor? lower, Tensor? upper, "
      "Tensor(a!) workspace, int solver, int non_finite, float gap, int max_work) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def("assign_workspace(Tensor scores, int solver, float gap) -> int");
}

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("assign", assign_cpu);
  library.impl("assign_workspace", assign_workspace_cpu);
}

}  // namespace

Assigner::Assigner(AssignOptions options) : options_(std::move(options)) {
  if (options_.self_check && options_.solver == assignment::SolverKind::kGreedy) {
    fail("greedy assignments are usually not valid: choose another solver, or no self-check");
  }
}
Assigner::~Assigner() = default;
Assigner::Assigner(Assigner&&) noexcept = default;
Assigner& Assigner::operator=(Assigner&&) noexcept = default;

TensorAssignment Assigner::assign(const Tensor& given, const AssignInputs& inputs) {
  const at::NoGradGuard no_grad;
  if (!given.defined() || (given.dim() != 2 && given.dim() != 3)) {
    fail("scores of shape {}: want [tokens, experts] or [problems, tokens, experts]",
         given.defined() ? shape_of(given) : "undefined");
  }
  const bool batched = given.dim() == 3;
  const Tensor scores = batched ? given.detach() : given.detach().unsqueeze(0);
  score_type_of(scores);
  const AssignInputs ready = checked(inputs, scores);
  const assignment::LoadBounds& bounds = options_.bounds;
  if (scores.size(2) < 1) fail("scores of no experts; at least one is needed");
  if (!bounds.lower.empty() || !bounds.upper.empty()) {
    assignment::check_bounds(bounds, scores.size(1), scores.size(2));
  }
  TensorAssignment result =
      scores.is_cuda() ? assign_on_cuda(scores, ready) : assign_on_cpu(scores, ready);
  if (!scores.is_cuda()) check(result);
  if (!batched) {
    for (Tensor* tensor : {&result.expert_of_token, &result.tokens_by_expert,
                           &result.place_of_token, &result.loads, &result.prices}) {
      *tensor = tensor->squeeze(0);
    }
  }
  return result;
}

TensorAssignment Assigner::assign_on_cpu(const Tensor& scores, const AssignInputs& inputs) {
  if (!solver_) solver_ = assignment::make_solver(options_.solver, options_.threads);
  const int64_t problems = scores.size(0), tokens = scores.size(1), experts = scores.size(2);
  const auto ints = scores.options().dtype(at::kInt);
  const auto status_size = static_cast<int64_t>(sizeof(AssignmentStatus));
  const TensorAssignment out{.expert_of_token = at::empty({problems, tokens}, ints),
                             .tokens_by_expert = at::empty({problems, tokens}, ints),
                             .place_of_token = at::empty({problems, tokens}, ints),
                             .loads = at::empty({problems, experts}, ints),
                             .prices = at::empty({problems, experts}, ints.dtype(at::kDouble)),
                             .status = at::empty({problems, status_size}, ints.dtype(at::kByte))};
  for (int64_t p = 0; p < problems; ++p) {
    assignment::AssignmentProblem problem;
    const int64_t offset = p * scores.stride(0) * static_cast<int64_t>(scores.element_size());
    problem.scores = {.data = static_cast<const char*>(scores.const_data_ptr()) + offset,
                      .type = score_type_of(scores),
                      .tokens = tokens,
                      .experts = experts,
                      .token_stride = scores.stride(1),
                      .expert_stride = scores.stride(2)};
    problem.bounds = options_.bounds;
    problem.non_finite = options_.non_finite;
    std::span<const double> start;
    if (inputs.counted.defined()) {
      problem.counted = {inputs.counted.const_data_ptr<uint8_t>() + p * tokens,
                         static_cast<size_t>(tokens)};
    }
    if (inputs.start_prices.defined()) {
      start = {inputs.start_prices.const_data_ptr<double>() + p * inputs.start_prices.stride(0),
               static_cast<size_t>(experts)};
    }
    try {
      solver_->solve(problem, start, result_);
    } catch (const UserError& error) {
      fail("{}{}", problem_name(p, problems), error.what());
    }
    copy_row(result_.expert_of_token, out.expert_of_token, p);
    copy_row(result_.tokens_by_expert, out.tokens_by_expert, p);
    copy_row(result_.place_of_token, out.place_of_token, p);
    copy_row(result_.loads, out.loads, p);
    copy_row(result_.prices, out.prices, p);
    const AssignmentStatus status = status_of(result_);
    std::memcpy(out.status.data_ptr<uint8_t>() + p * status_size, &status, sizeof(status));
  }
  return out;
}

TensorAssignment Assigner::assign_on_cuda(const Tensor& scores, const AssignInputs& inputs) {
  static const auto assign =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("ballast::assign", "")
          .typed<Results(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                         const OptionalTensor&, const OptionalTensor&, const Tensor&, int64_t,
                         int64_t, double, int64_t)>();
  static const auto workspace_bytes = c10::Dispatcher::singleton()
                                          .findSchemaOrThrow("ballast::assign_workspace", "")
                                          .typed<int64_t(const Tensor&, int64_t, double)>();
  if (options_.solver == assignment::SolverKind::kSinkhorn) {
    fail("sinkhorn runs on the CPU only: choose exact, auction or greedy for scores on a GPU");
  }
  const auto solver = static_cast<int64_t>(options_.solver);
  const int64_t bytes = workspace_bytes.call(scores, solver, options_.gap);
  if (!workspace_.defined() || workspace_.device() != scores.device() ||
      workspace_.numel() < bytes) {
    workspace_ = at::empty({bytes}, scores.options().dtype(at::kByte));
  }
  const bool bounded = !are_equal_loads(options_.bounds, scores.size(1), scores.size(2));
  if (bounded && (!lower_.defined() || lower_.device() != scores.device())) {
    lower_ = on_device(options_.bounds.lower, scores);
    upper_ = on_device(options_.bounds.upper, scores);
  }
  return named(assign.call(
      scores, kernels::if_defined(inputs.counted), kernels::if_defined(inputs.start_prices),
      bounded ? kernels::if_defined(lower_) : std::nullopt,
      bounded ? kernels::if_defined(upper_) : std::nullopt, workspace_, solver,
      static_cast<int64_t>(options_.non_finite), options_.gap, options_.max_work));
}

std::vector<AssignmentStatus> read_status(const TensorAssignment& result) {
  return status_blocks(result.status.cpu());
}

std::vector<AssignmentStatus> status_blocks(const Tensor& bytes) {
  std::vector<AssignmentStatus> status(static_cast<size_t>(bytes.size(0)));
  if (!status.empty())
    std::memcpy(status.data(), bytes.const_data_ptr(), status.size() * sizeof(AssignmentStatus));
  return status;
}

void Assigner::check(const TensorAssignment& result) const { check(read_status(result)); }

void Assigner::check(std::span<const AssignmentStatus> all) const {
  for (size_t p = 0; p < all.size(); ++p) {
    const AssignmentStatus& status = all[p];
    const auto where = [&] {
      return problem_name(static_cast<int64_t>(p), static_cast<int64_t>(all.size()));
    };
    if (status.code == AssignmentStatus::kNonFinite) {
      fail("{}the score of token {} for expert {} is not finite", where(), status.token,
           status.expert);
    }
    if (status.code == AssignmentStatus::kInfeasible) {
      fail("{}no assignment keeps to the load bounds without a forbidden pair (score -inf)",
           where());
    }
    if (options_.self_check && status.valid == 0) {
      fail(
          "{}the assignment of the {} solver does not keep to the load bounds: a defect, please "
          "report it with the scores",
          where(), assignment::solver_name(options_.solver));
    }
  }
}

}  // namespace ballast::experts
