// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/run_reporter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "ballast/model/model_size.h"
#include "ballast/system/log.h"
#include "ballast/training/compute_rate.h"

namespace ballast::training {

RunReporter::RunReporter(const record::RunDirectory& run, const Trainer& trainer,
                         const RunMemory& memory)
    : trainer_(trainer),
      memory_(memory),
      metrics_(run.metrics(), static_cast<uint64_t>(trainer.state().step) + 1),
      samples_(run.samples(), static_cast<uint64_t>(trainer.state().step) + 1),
      tensorboard_(run.tensorboard(), static_cast<uint64_t>(trainer.state().step) + 1),
      progress_("train",
                static_cast<uint64_t>(
                    std::max<int64_t>(0, trainer.config().training.steps - trainer.state().step)),
                "steps", OffTerminal::kSilent),
      flops_per_token_(model::model_size(trainer.config()).flops_per_token),
      matrix_rate_(measure_matrix_rate(trainer.place()) * trainer.workers().size()) {}

namespace {

// What a layer's router has to tell, by name.
std::vector<std::pair<const char*, double>> numbers_of(const LayerStats& layer,
                                                       const config::ExpertsConfig& config) {
  std::vector<std::pair<const char*, double>> numbers = {
      {"assign_seconds", layer.assign_seconds},
      {"exchange_seconds", layer.exchange_seconds},
      {"mean_gate", layer.mean_gate}};
  if (config.traits().balanced) {
    numbers.emplace_back("greedy_share", layer.greedy_share);
    numbers.emplace_back(
        config.solver == config::TrainingSolver::kExact ? "relative_gap" : "shortfall_bound",
        layer.relative_gap);
  } else {
    numbers.emplace_back("dropped_share", layer.dropped_share);
    numbers.emplace_back("passed_share", layer.passed_share);
    numbers.emplace_back("balance_loss", layer.balance_loss);
  }
  return numbers;
}

nlohmann::json layers_json(const std::vector<LayerStats>& layers,
                           const config::ExpertsConfig& config) {
  nlohmann::json list = nlohmann::json::array();
  for (const LayerStats& layer : layers) {
    nlohmann::json& record = list.emplace_back(nlohmann::json{{"layer", layer.place}});
    for (const auto& [name, value] : numbers_of(layer, config)) record[name] = value;
  }
  return list;
}

// "greedy 0.83", "gap 0", "assign 1.2ms 2%", "all2all 3.4ms 5%" over all BASE layers; of an inexact
// solver "<=3% below optimum" in place of the gap, since it proves no more; or
// "dropped 3.1%", "balance 1.02", "gate 1.2ms 2%", "all2all 3.4ms 5%" over all gates.
std::vector<std::string> layers_texts(const StepStats& stats, const config::ExpertsConfig& config) {
  if (stats.layers.empty()) return {};
  const auto count = static_cast<double>(stats.layers.size());
  double greedy = 0, gap = 0, dropped = 0, balance = 0, assign = 0, exchange = 0;
  for (const LayerStats& layer : stats.layers) {
    greedy += layer.greedy_share / count;
    gap = std::max(gap, layer.relative_gap);
    dropped += layer.dropped_share / count;
    balance += layer.balance_loss / count;
    assign += layer.assign_seconds;
    exchange += layer.exchange_seconds;
  }
  const auto time = [&](const char* name, double seconds) {
    return fmt::format("{} {:.1f}ms {:.0f}%", name, 1e3 * seconds, 100 * seconds / stats.seconds);
  };
  const std::string exchanged = time("all2all", exchange);
  if (!config.traits().balanced)
    return {fmt::format("dropped {:.1f}%", 100 * dropped), fmt::format("balance {:.2f}", balance),
            time("gate", assign), exchanged};
  return {fmt::format("greedy {:.2f}", greedy),
          config.solver == config::TrainingSolver::kExact
              ? fmt::format("gap {}", gap < 1e-12 ? "0" : fmt::format("{:.0e}", gap))
              : fmt::format("<={:.2g}% below optimum", 100 * gap),
          time("assign", assign), exchanged};
}

void add_layer_scalars(const StepStats& stats, const config::ExpertsConfig& config,
                       std::vector<record::Scalar>& scalars) {
  for (const LayerStats& layer : stats.layers) {
    for (const auto& [name, value] : numbers_of(layer, config))
      scalars.push_back({fmt::format("experts/layer{}_{}", layer.place, name), value});
  }
}

nlohmann::json use_json(const inference::ExpertUse& use, int64_t place) {
  return {{"layer", place},
          {"busiest_share", use.busiest_share()},
          {"experts_in_use", std::ranges::count_if(use.loads(), [](int64_t n) { return n > 0; })},
          {"dead_experts", use.dead_experts()},
          {"domain_information_bits",
           use.domain_bits() ? nlohmann::json(*use.domain_bits()) : nlohmann::json()},
          {"loads", use.loads()}};
}

// What a validation's layers have, each with the variance of its scores in one direction.
nlohmann::json uses_json(const inference::Evaluation& result, const model::LanguageModel& model) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < result.experts.size(); ++i) {
    list.push_back(use_json(result.experts[i], model.expert_layers()[i]->place()));
    list.back()["first_direction_share"] = result.first_direction_shares[i];
  }
  return list;
}

}  // namespace

// The more important a part, the narrower the terminal that shows it.
std::vector<LinePart> RunReporter::step_parts(const StepStats& stats) const {
  const double rate = static_cast<double>(tokens_) / seconds_;
  const int64_t left = trainer_.config().training.steps - stats.step;
  const double eta = static_cast<double>(left * stats.tokens) / rate;
  std::vector<LinePart> parts = {
      {fmt::format("step {}/{}", stats.step, trainer_.config().training.steps), 9},
      {fmt::format("loss {:.4f}", stats.loss), 8},
      {fmt::format("ppl {:.2f}", std::exp(stats.loss)), 5},
      {fmt::format("lr {:.2e}", stats.learning_rate), 3},
      {fmt::format("norm {:.3f}", stats.gradient_norm), 4},
      {fmt::format("{} tok/s", format_count(rate)), 6},
      {fmt::format("MFU {:.0f}%", 100 * rate * flops_per_token_ / matrix_rate_), 2},
      {fmt::format("memory now {}", format_bytes(memory_.now())), 1}};
  for (std::string& text : layers_texts(stats, trainer_.config().experts))
    parts.push_back({std::move(text), 0});
  parts.push_back({fmt::format("eta {}", format_duration(eta)), 7});
  return parts;
}

// The bar itself shows the time that is left.
void RunReporter::note_on_bar(const StepStats& stats) {
  constexpr double kOfLastStep = 0.1;
  const double rate = static_cast<double>(stats.tokens) / stats.seconds;
  bar_rate_ = bar_rate_ > 0 ? (1 - kOfLastStep) * bar_rate_ + kOfLastStep * rate : rate;
  progress_.note({{fmt::format("step {}/{}", stats.step, trainer_.config().training.steps), 3},
                  {fmt::format("loss {:.4f}", stats.loss), 1},
                  {fmt::format("{} tok/s", format_count(bar_rate_)), 0}});
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
  if (!stats.layers.empty()) {
    record["expert_grad_norm"] = stats.expert_gradient_norm;
    record["layers"] = layers_json(stats.layers, trainer_.config().experts);
  }
  for (const step::PartSeconds& part : stats.parts)
    record["parts"][std::string(step::part_name(part.part))] = part.seconds;
  if (!stats.skipped.empty()) {
    record["skip_reason"] = stats.skipped;
    log_warning("step {} skipped: {} ({} so far)", stats.step, stats.skipped, state.guard.skipped);
  }
  metrics_.append(record);
  note_on_bar(stats);
  progress_.advance(1);
  if (!is_logged(stats.step, trainer_.config().training)) return;
  log_parts(step_parts(stats));
  std::vector<record::Scalar> scalars = {
      {"train/loss", stats.loss},
      {"train/grad_norm", stats.gradient_norm},
      {"train/learning_rate", stats.learning_rate},
      {"train/tokens_per_second", static_cast<double>(tokens_) / seconds_},
      {"train/skipped", static_cast<double>(state.guard.skipped)}};
  for (const step::PartSeconds& part : stats.parts)
    scalars.push_back({fmt::format("time/{}", step::part_name(part.part)), part.seconds});
  add_layer_scalars(stats, trainer_.config().experts, scalars);
  tensorboard_.scalars(static_cast<uint64_t>(stats.step), scalars);
  seconds_ = 0;
  tokens_ = 0;
}

void RunReporter::validation(int64_t step, const Validation& validation,
                             std::optional<double> floor_per_token) {
  const inference::Evaluation& result = validation.result;
  nlohmann::json record = {
      {"step", static_cast<uint64_t>(step)},   {"valid_loss", result.loss},
      {"valid_perplexity", result.perplexity}, {"valid_tokens", result.tokens},
      {"valid_windows", result.windows},       {"split_tokens", result.split_tokens},
      {"split_windows", result.split_windows}, {"whole_split", result.is_whole_split()}};
  if (!result.domains.empty())
    record["domains"] = record::domains_json(inference::domain_results(result.domains));
  std::string floor;
  if (floor_per_token) {
    record["valid_floor"] = *floor_per_token;
    floor = fmt::format(" | entropy floor {:.4f} (ppl {:.2f})", *floor_per_token,
                        std::exp(*floor_per_token));
  }
  if (validation.other) {
    nlohmann::json& other = record["other_routing"];
    other = {{"routing", experts::routing_name(validation.other_routing)},
             {"loss", validation.other->loss},
             {"perplexity", validation.other->perplexity}};
    other["experts"] = uses_json(*validation.other, trainer_.model());
  }
  if (!result.experts.empty()) record["experts"] = uses_json(result, trainer_.model());
  std::vector<record::Scalar> scalars = {{"valid/loss", result.loss},
                                         {"valid/perplexity", result.perplexity}};
  for (size_t i = 0; i < result.experts.size(); ++i) {
    const int64_t place = trainer_.model().expert_layers()[i]->place();
    if (!result.second_experts.empty())
      record["second_experts"].push_back(use_json(result.second_experts[i], place));
    const std::string name = fmt::format("valid/layer{}_", place);
    scalars.push_back({name + "busiest_share", result.experts[i].busiest_share()});
    scalars.push_back({name + "first_direction_share", result.first_direction_shares[i]});
    if (const std::optional<double> bits = result.experts[i].domain_bits())
      scalars.push_back({name + "domain_information", *bits});
    scalars.push_back(
        {name + "dead_experts", static_cast<double>(result.experts[i].dead_experts().size())});
  }
  metrics_.append(record);
  tensorboard_.scalars(static_cast<uint64_t>(step), scalars);
  log_info("validation at step {} | loss {:.4f} | ppl {:.2f}{} | {}", step, result.loss,
           result.perplexity, floor, inference::extent_in_words(result));
  for (size_t i = 0; i < result.experts.size(); ++i) report_use(result, validation.routing, i);
  if (!validation.other) return;
  log_info("  the same with {} routing | loss {:.4f} | ppl {:.2f}",
           experts::routing_name(validation.other_routing), validation.other->loss,
           validation.other->perplexity);
  for (size_t i = 0; i < validation.other->experts.size(); ++i)
    report_use(*validation.other, validation.other_routing, i);
}

void RunReporter::report_use(const inference::Evaluation& result, experts::RoutingMode routing,
                             size_t layer) const {
  const int64_t place = trainer_.model().expert_layers()[layer]->place();
  const inference::ExpertUse& use = result.experts[layer];
  const bool has_second = !result.second_experts.empty();
  log_info(
      "  layer {} | {} routing{} | busiest expert {:.2f} x its share | {} of {} experts in use{}",
      place, experts::routing_name(routing), has_second ? ", first experts" : "",
      use.busiest_share(), std::ranges::count_if(use.loads(), [](int64_t n) { return n > 0; }),
      use.experts(),
      use.domain_bits()
          ? fmt::format(" | domain tells {:.2f} bits of the expert", *use.domain_bits())
      : use.domains().empty() ? ""
                              : " | too few tokens to tell of domains");
  std::vector<int64_t> dead = use.dead_experts();
  if (has_second) {
    const std::vector<int64_t> second = result.second_experts[layer].loads();
    std::erase_if(dead, [&](int64_t e) { return second[static_cast<size_t>(e)] > 0; });
    log_info("    second experts: busiest {:.2f} x its share",
             result.second_experts[layer].busiest_share());
  }
  if (!dead.empty())
    log_warning("layer {}: no token of the validation goes to expert(s) {}", place,
                fmt::join(dead, ", "));
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

}  // namespace ballast::training
