// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/run_reporter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "ballast/model/model_size.h"
#include "ballast/system/log.h"
#include "ballast/training/compute_rate.h"

namespace ballast {

RunReporter::RunReporter(const RunDirectory& run, const Trainer& trainer)
    : trainer_(trainer),
      metrics_(run.metrics(), static_cast<uint64_t>(trainer.state().step) + 1),
      samples_(run.samples(), static_cast<uint64_t>(trainer.state().step) + 1),
      tensorboard_(run.tensorboard(), static_cast<uint64_t>(trainer.state().step) + 1),
      progress_("train",
                static_cast<uint64_t>(
                    std::max<int64_t>(0, trainer.config().training.steps - trainer.state().step)),
                "steps", OffTerminal::kSilent),
      flops_per_token_(model_size(trainer.config()).flops_per_token),
      matrix_rate_(measure_matrix_rate(trainer.place())) {}

std::string RunReporter::step_line(const StepStats& stats) const {
  const double rate = static_cast<double>(tokens_) / seconds_;
  const int64_t left = trainer_.config().training.steps - stats.step;
  const double eta = static_cast<double>(left * stats.tokens) / rate;
  return fmt::format(
      "step {}/{} | loss {:.4f} | ppl {:.2f} | lr {:.2e} | norm {:.3f} | {} tok/s | MFU {:.0f}% | "
      "{} | eta {}",
      stats.step, trainer_.config().training.steps, stats.loss, std::exp(stats.loss),
      stats.learning_rate, stats.gradient_norm, format_count(rate),
      100 * rate * flops_per_token_ / matrix_rate_,
      format_bytes(static_cast<double>(memory_in_use(trainer_.place()))), format_duration(eta));
}

void RunReporter::step(const StepStats& stats) {
  seconds_ += stats.seconds;
  tokens_ += stats.tokens;
  const TrainingState& state = trainer_.state();
  nlohmann::json record = {{"step", static_cast<uint64_t>(stats.step)},
                           {"loss", stats.loss},
                           {"perplexity", std::exp(stats.loss)},
                           {"tokens", state.tokens},
                           {"seconds", state.seconds},
                           {"tokens_per_second", static_cast<double>(stats.tokens) / stats.seconds},
                           {"grad_norm", stats.gradient_norm},
                           {"learning_rate", stats.learning_rate},
                           {"skipped", state.guard.skipped}};
  if (!stats.skipped.empty()) {
    record["skip_reason"] = stats.skipped;
    log_warning("step {} skipped: {} ({} so far)", stats.step, stats.skipped, state.guard.skipped);
  }
  metrics_.append(record);
  progress_.advance(1);
  const int64_t every = trainer_.config().training.log_every;
  if (stats.step % every != 0 && stats.step != 1 && stats.step != trainer_.config().training.steps)
    return;
  const std::string line = step_line(stats);
  log_line(line);
  const std::vector<Scalar> scalars = {
      {"train/loss", stats.loss},
      {"train/grad_norm", stats.gradient_norm},
      {"train/learning_rate", stats.learning_rate},
      {"train/tokens_per_second", static_cast<double>(tokens_) / seconds_},
      {"train/skipped", static_cast<double>(state.guard.skipped)}};
  tensorboard_.scalars(static_cast<uint64_t>(stats.step), scalars);
  seconds_ = 0;
  tokens_ = 0;
}

void RunReporter::validation(int64_t step, const Evaluation& result,
                             std::optional<double> floor_per_token) {
  nlohmann::json record = {{"step", static_cast<uint64_t>(step)},
                           {"valid_loss", result.loss},
                           {"valid_perplexity", result.perplexity},
                           {"valid_tokens", result.tokens}};
  std::string floor;
  if (floor_per_token) {
    record["valid_floor"] = *floor_per_token;
    floor = fmt::format(" | entropy floor {:.4f} (ppl {:.2f})", *floor_per_token,
                        std::exp(*floor_per_token));
  }
  metrics_.append(record);
  const std::vector<Scalar> scalars = {{"valid/loss", result.loss},
                                       {"valid/perplexity", result.perplexity}};
  tensorboard_.scalars(static_cast<uint64_t>(step), scalars);
  log_info("validation at step {} | loss {:.4f} | ppl {:.2f}{} | {} tokens", step, result.loss,
           result.perplexity, floor, format_count(static_cast<double>(result.tokens)));
}

void RunReporter::sample(int64_t step, const std::string& text) {
  samples_.append(static_cast<uint64_t>(step), text);
  tensorboard_.text(static_cast<uint64_t>(step), "sample", "```\n" + text + "\n```");
  log_info("sample at step {}:\n{}\n", step, text);
}

void RunReporter::sync() {
  metrics_.sync();
  samples_.sync();
  tensorboard_.sync();
}

}  // namespace ballast
