// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/score.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>

#include "ballast/batches/batch.h"
#include "ballast/comm/any_worker.h"
#include "ballast/loading/batch_tensors.h"

namespace ballast::inference {
namespace {

constexpr int64_t kLogitRows = 256;  // rows of the vocabulary's size that are there at a time

// Longest first: rows of a batch are about alike, and memory that does not suffice is seen at once.
std::vector<size_t> by_length(const std::vector<Continuation>& continuations) {
  std::vector<size_t> order(continuations.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto length = [&](size_t i) {
    return continuations[i].context.size() + continuations[i].target.size();
  };
  std::ranges::stable_sort(order, std::greater(), length);
  return order;
}

// Rows of one forward pass, and of each target where it lies in them and to which continuation it
// belongs.
struct Rows {
  batches::Batch batch;
  std::vector<int64_t> places, targets;
  std::vector<size_t> owners;
};

Rows make_rows(const std::vector<Continuation>& continuations, std::span<const size_t> numbers,
               int64_t context) {
  const auto length = [&](const Continuation& one) {
    return std::min<int64_t>(context, std::ssize(one.context) + std::ssize(one.target) - 1);
  };
  Rows rows;
  rows.batch.rows = std::max<int64_t>(1, std::ssize(numbers));  // one for all to pass through
  rows.batch.context = 1;
  for (const size_t number : numbers)
    rows.batch.context = std::max(rows.batch.context, length(continuations[number]));
  const auto size = static_cast<size_t>(rows.batch.rows * rows.batch.context);
  rows.batch.inputs.assign(size, 0);
  rows.batch.targets.assign(size, batches::kIgnoredTarget);
  for (size_t row = 0; row < numbers.size(); ++row) {
    const Continuation& one = continuations[numbers[row]];
    std::vector<int64_t> tokens = one.context;
    tokens.insert(tokens.end(), one.target.begin(), one.target.end());
    const int64_t inputs = length(one), first = std::ssize(tokens) - 1 - inputs;
    const int64_t begin = static_cast<int64_t>(row) * rows.batch.context;
    std::copy_n(tokens.begin() + first, inputs, rows.batch.inputs.begin() + begin);
    for (int64_t i = inputs - std::ssize(one.target); i < inputs; ++i) {
      rows.places.push_back(begin + i);
      rows.targets.push_back(tokens[static_cast<size_t>(first + i + 1)]);
      rows.owners.push_back(numbers[row]);
    }
  }
  return rows;
}

void check(const std::vector<Continuation>& continuations, int64_t context) {
  for (const Continuation& one : continuations) {
    if (one.context.empty() || one.target.empty() || std::ssize(one.target) > context)
      throw std::invalid_argument("score: a continuation without context or target, or too long");
  }
}

at::Tensor view_of(std::vector<int64_t>& values, int64_t first, int64_t count) {
  return at::from_blob(values.data() + first, {count}, at::TensorOptions(at::kLong));
}

// sums: of each continuation its nats, and at how many places another token is the likeliest.
void add_scores(const model::LanguageModel& model, const at::Tensor& hidden, Rows& rows,
                std::vector<double>& sums) {
  const auto size = std::ssize(rows.places);
  for (int64_t first = 0; first < size; first += kLogitRows) {
    const int64_t count = std::min(kLogitRows, size - first);
    const at::Tensor targets = view_of(rows.targets, first, count).to(hidden.device());
    const at::Tensor here =
        hidden.index_select(0, view_of(rows.places, first, count).to(hidden.device()));  // [C, D]
    const at::Tensor losses = model.losses(here, targets).to(at::kCPU, at::kDouble).contiguous();
    const at::Tensor missed =
        model.logits(here).argmax(-1).ne(targets).to(at::kCPU, at::kDouble).contiguous();
    for (int64_t i = 0; i < count; ++i) {
      const size_t owner = rows.owners[static_cast<size_t>(first + i)];
      sums[2 * owner] += losses.const_data_ptr<double>()[i];
      sums[2 * owner + 1] += missed.const_data_ptr<double>()[i];
    }
  }
}

}  // namespace

std::vector<ContinuationScore> score(const model::LanguageModel& model,
                                     const model::ComputePlace& place,
                                     const std::vector<Continuation>& continuations,
                                     const ScoreOptions& options,
                                     const std::function<bool(uint64_t)>& advance) {
  const at::NoGradGuard no_grad;
  const int64_t context = model.config().context;
  check(continuations, context);
  const std::vector<size_t> order = by_length(continuations);
  const auto batch = static_cast<size_t>(options.batch);
  const auto replicas = static_cast<size_t>(model.grid().num_replicas());
  std::vector<double> sums(2 * continuations.size());
  for (size_t done = 0; done < order.size(); done += batch * replicas) {
    const size_t mine =
        std::min(order.size(), done + batch * static_cast<size_t>(model.grid().replica()));
    Rows rows =
        make_rows(continuations,
                  std::span(order).subspan(mine, std::min(batch, order.size() - mine)), context);
    const loading::BatchTensors tensors = loading::to_device(rows.batch, place.device);
    const at::Tensor hidden = model.forward(tensors.inputs, {.mode = options.routing});
    add_scores(model, hidden, rows, sums);
    const uint64_t taken = std::min(batch * replicas, order.size() - done);
    if (advance && comm::on_any_worker(model.workers(), !advance(taken), {"stop scoring"}))
      return {};
  }
  const at::Tensor all =
      at::from_blob(sums.data(), {std::ssize(sums)}, at::TensorOptions(at::kDouble));
  if (model.grid().shard() != 0) all.zero_();  // its shards have what a replica has alike
  model.workers().all_reduce(all, comm::Reduction::kSum, {"scores"});
  std::vector<ContinuationScore> scores;
  for (size_t i = 0; i < continuations.size(); ++i)
    scores.push_back({.nats = sums[2 * i], .is_likeliest = sums[2 * i + 1] == 0});
  return scores;
}

std::vector<Continuation> rolling_windows(const std::vector<int64_t>& tokens, int64_t first,
                                          int64_t context) {
  std::vector<Continuation> windows;
  const auto part = [&](int64_t begin, int64_t end) {
    return std::vector<int64_t>(tokens.begin() + begin, tokens.begin() + end);
  };
  for (int64_t done = 0; done < std::ssize(tokens);) {
    const int64_t end = std::min<int64_t>(std::ssize(tokens), done + context);
    if (done == 0) {
      windows.push_back({.context = {first}, .target = part(0, end)});
    } else {
      windows.push_back({.context = part(end - context - 1, done), .target = part(done, end)});
    }
    done = end;
  }
  return windows;
}

}  // namespace ballast::inference
