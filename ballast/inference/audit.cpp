// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/audit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <ranges>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ballast/comm/any_worker.h"
#include "ballast/comm/collectives.h"
#include "ballast/comm/texts.h"
#include "ballast/inference/window_rounds.h"
#include "ballast/loading/batch_tensors.h"
#include "ballast/system/error.h"
#include "ballast/system/random.h"

namespace ballast::inference {
namespace {

constexpr int64_t kLogitRows = 256;  // at a time: those of a large vocabulary are large

using Prefixes = std::vector<int64_t>;  // tokens before the cut of each row; 0: it has none

// What a model shows in one pass over a batch.
struct Pass {
  std::vector<experts::SeenRoute> routes;  // in the order of layers, on the CPU
  at::Tensor hidden;                       // [rows * context, D]
};

// Inputs of the row before the end of the source.
int64_t real_inputs(const batches::Batch& batch, int64_t row) {
  const auto targets =
      std::views::counted(batch.targets.begin() + row * batch.context, batch.context);
  const auto behind = std::ranges::find_if(targets | std::views::reverse,
                                           [](int64_t target) { return target >= 0; });
  return behind.base() - targets.begin();
}

class Audit {
 public:
  Audit(const model::LanguageModel& model, const model::ComputePlace& place,
        const AuditOptions& options)
      : model_(model), place_(place), options_(options) {
    const config::ModelConfig& config = model.config();
    const auto layers = config.layers + std::ssize(model.expert_layers());
    report_.bounds.logits = rounding_bound(place.working, config.width, 2 * layers);
    report_.bounds.scores = report_.bounds.logits + 0x1p-23;  // which come as fp32
  }

  // All cuts of the windows of a batch. Collective: also for a worker that has none.
  void add(const WindowRounds::Taken& taken) {
    const Pass before = run(taken.batch);
    report_.windows += std::ssize(taken.windows);
    for (int64_t cut = 0; cut < options_.cuts; ++cut) {
      const Prefixes prefixes = choose_prefixes(taken, cut);
      report_.cuts += std::ranges::count_if(prefixes, [](int64_t tokens) { return tokens > 0; });
      compare(before, run(with_other_futures(taken, prefixes, cut)), taken.windows, prefixes);
    }
  }

  AuditReport of_all(comm::Communicator& workers) const {
    const ComparisonCounts& own = report_.counts;
    const at::Tensor sums =
        at::tensor({report_.windows, report_.cuts, own.routes, own.ties, own.changed_routes,
                    own.logits, own.changed_logits, own.left_out});
    if (model_.grid().shard() != 0) sums.zero_();  // its shards have what a replica has alike
    workers.all_reduce(sums, comm::Reduction::kSum, {"audit"});
    const at::Tensor most = at::full({1}, own.logit_difference, at::kDouble);
    workers.all_reduce(most, comm::Reduction::kMax, {"audit"});
    const auto* sum = sums.const_data_ptr<int64_t>();
    AuditReport all;
    all.windows = sum[0];
    all.cuts = sum[1];
    all.counts = {sum[2], sum[3], sum[4], sum[5], sum[6], sum[7], most.item<double>()};
    all.bounds = report_.bounds;
    for (const std::string& leak : comm::gather_texts(workers, report_.first_leak, {"audit"}))
      if (all.first_leak.empty()) all.first_leak = leak;
    return all;
  }

 private:
  Pass run(const batches::Batch& batch) const {
    Pass pass;
    experts::Routing routing{.mode = options_.routing};
    const comm::RowsOfWorker rows = comm::divide_rows(
        std::ssize(batch.inputs), model_.grid().num_shards());  // each shard sees some
    const auto of_all = [&](const at::Tensor& own, at::ScalarType type) {
      const at::Tensor here = own.to(at::kCPU, type).contiguous();
      return comm::gather_rows(model_.grid().shards(), here, rows, {"audit"});
    };
    routing.seen = [&](const experts::SeenRoute& route) {
      pass.routes.push_back({route.layer, of_all(route.expert_of_token, at::kLong),
                             of_all(route.scores, at::kFloat)});
    };
    pass.hidden = model_.forward(loading::to_device(batch, place_.device).inputs, routing);
    return pass;
  }

  // One cut of each window, anywhere in its `cut`-th part.
  Prefixes choose_prefixes(const WindowRounds::Taken& taken, int64_t cut) const {
    Prefixes prefixes(static_cast<size_t>(taken.batch.rows), 0);
    for (size_t row = 0; row < taken.windows.size(); ++row) {
      const int64_t longest =
          std::min(real_inputs(taken.batch, static_cast<int64_t>(row)), taken.batch.context - 1);
      const int64_t begin = longest * cut / options_.cuts,
                    end = longest * (cut + 1) / options_.cuts;
      if (begin == end) continue;
      const auto choices = static_cast<uint64_t>(end - begin);
      const uint64_t offset = random("audit cut", taken.windows[row], cut).below(choices);
      prefixes[row] = 1 + begin + static_cast<int64_t>(offset);
    }
    return prefixes;
  }

  // Every token from the cuts on becomes another one.
  batches::Batch with_other_futures(const WindowRounds::Taken& taken, const Prefixes& prefixes,
                                    int64_t cut) const {
    batches::Batch changed = taken.batch;
    const auto vocabulary = static_cast<uint64_t>(model_.config().vocabulary);
    const auto context = static_cast<size_t>(changed.context);
    for (size_t row = 0; row < taken.windows.size(); ++row) {
      if (prefixes[row] == 0) continue;
      RandomStream others = random("audit tokens", taken.windows[row], cut);
      const auto tokens = std::span(changed.inputs).subspan(row * context, context);
      for (int64_t& token : tokens.subspan(static_cast<size_t>(prefixes[row]))) {
        const uint64_t other = static_cast<uint64_t>(token) + 1 + others.below(vocabulary - 1);
        token = static_cast<int64_t>(other % vocabulary);
      }
    }
    return changed;
  }

  RandomStream random(std::string_view purpose, uint64_t window, int64_t cut) const {
    return {options_.seed, purpose, window, static_cast<uint64_t>(cut)};
  }

  void compare(const Pass& before, const Pass& after, const std::vector<uint64_t>& windows,
               const Prefixes& prefixes) {
    PrefixComparison comparison(report_.bounds, windows, prefixes);
    for (size_t i = 0; i < before.routes.size(); ++i)
      comparison.add_routes(before.routes[i], after.routes[i], largest_price(i));
    const int64_t context = before.hidden.size(0) / std::ssize(prefixes);
    for (int64_t row = 0; row < std::ssize(prefixes); ++row) {
      const int64_t tokens = comparison.untouched(row);
      for (int64_t first = 0; first < tokens; first += kLogitRows) {
        const auto logits = [&](const Pass& pass) {
          return model_.logits(
              pass.hidden.narrow(0, row * context + first, std::min(kLogitRows, tokens - first)));
        };
        comparison.add_logits(row, first, logits(before), logits(after));
      }
    }
    report_.counts.add(comparison.counts());
    if (report_.first_leak.empty()) report_.first_leak = comparison.first_leak();
  }

  double largest_price(size_t layer) const {
    if (options_.routing != experts::RoutingMode::kPriced) return 0;
    return model_.expert_layers()[layer]->router().prices()->value().abs().max().item<double>();
  }

  const model::LanguageModel& model_;
  const model::ComputePlace place_;
  const AuditOptions options_;
  AuditReport report_;  // this worker's
};

}  // namespace

AuditReport audit_causality(const model::LanguageModel& model, const model::ComputePlace& place,
                            const batches::EvalWindows& windows, const AuditOptions& options,
                            const std::function<bool(uint64_t)>& advance) {
  const at::NoGradGuard no_grad;
  if (model.config().vocabulary < 2) fail("the audit: a vocabulary of one token has no other");
  if (model.config().context < 2) fail("the audit: a context of one token has nothing after it");
  comm::Communicator& workers = model.workers();
  const WindowRounds rounds(windows, {options.batch, options.max_windows},
                            {model.grid().replica(), model.grid().num_replicas()});
  Audit audit(model, place, options);
  for (uint64_t round = 0; round < rounds.size(); ++round) {
    audit.add(rounds.take(round));
    if (advance && comm::on_any_worker(workers, !advance(rounds.windows_of(round)), {"stop audit"}))
      break;
  }
  return audit.of_all(workers);
}

}  // namespace ballast::inference
