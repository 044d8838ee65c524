// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/training_run.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "ballast/comm/agreement.h"
#include "ballast/comm/any_worker.h"
#include "ballast/config/system_words.h"
#include "ballast/inference/generate.h"
#include "ballast/loading/framing.h"
#include "ballast/model/model_size.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "ballast/system/utf8.h"
#include "ballast/training/step_profile.h"

namespace ballast::training {
namespace {

using Clock = std::chrono::steady_clock;

bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

model::ComputePlace place_of(const config::Config& config, comm::World& world) {
  model::ComputePlace place;
  const model::PlaceRequest request{.device = config.training.device,
                                    .precision = config.training.precision,
                                    .threads = config.training.threads,
                                    .deterministic = config.training.deterministic,
                                    .on_machine = world.place()};
  const auto choose = [&] {
    place = model::choose_place(request);
    check_memory(config, place, world.everyone().size(), memory_for(place, world.place()));
  };
  comm::all_or_none(world.everyone(), choose, {"device"});
  world.compute_on(place.device);
  return place;
}

}  // namespace

TrainingRun::TrainingRun(const config::Config& config, const std::filesystem::path& run,
                         record::RunDirectory* directory, TrainingData& data, comm::World& world)
    : config_(config),
      run_(run),
      directory_(directory),
      data_(data),
      workers_(world.everyone()),
      place_(place_of(config, world)),
      grid_(workers_, config.training.model_parallel),
      memory_(place_),
      trainer_(config, place_, data.train, grid_) {}

void TrainingRun::resume(const checkpoint::Checkpoint& checkpoint) {
  trainer_.resume(checkpoint);
  checkpoint_ = checkpoint.path();
  saved_at_ = trainer_.state().step;
}

bool TrainingRun::routes_in_several_ways() const {
  return config_.experts.layers > 0 && config_.experts.traits().balanced;
}

uint64_t TrainingRun::windows_of(int64_t batches) const {
  const config::TrainingConfig& t = config_.training;
  return static_cast<uint64_t>(batches * (t.batch / t.micro_steps));
}

uint64_t TrainingRun::windows_of_last(const batches::EvalWindows& windows) {
  constexpr double kMostOfTraining = 0.1;
  const config::TrainingConfig& t = config_.training;
  if (t.last_validate_batches >= 0) return windows_of(t.last_validate_batches);
  const uint64_t part = windows_of(t.validate_batches);
  if (part == 0 || part >= windows.size()) return 0;
  if (!window_seconds_) evaluate_on(windows, part, Extent::kUsual);  // none was timed yet
  const double seconds =
      *window_seconds_ * static_cast<double>(windows.size()) * (routes_in_several_ways() ? 3 : 1);
  const bool fits = seconds <= kMostOfTraining * trainer_.state().seconds;
  // Clocks differ: worker 0 decides for all.
  if (comm::on_any_worker(workers_, workers_.rank() == 0 && fits, {"last validation"})) return 0;
  if (reporter_)
    log_info(
        "the last validation reads a part of the split: all of it would take about {}, more than a "
        "tenth of the training; `ballast eval {}` reads all",
        format_duration(seconds), run_.string());
  return part;
}

Validation TrainingRun::evaluate_on(const batches::EvalWindows& windows, uint64_t max_windows,
                                    Extent extent) {
  const bool is_last = extent == Extent::kLast;
  const auto evaluate_with = [&](experts::RoutingMode routing) {
    return inference::evaluate(
        trainer_.model(), place_, windows,
        {.batch = inference::evaluation_batch(config_),
         .max_windows = max_windows,
         .routing = routing,
         .previous_tokens = is_last && routing != experts::RoutingMode::kBalanced});
  };
  Validation validation;
  validation.routing =
      experts::parse_routing_mode(config::name_of(config_.experts.tested_routing()));
  const Clock::time_point begin = Clock::now();
  validation.result = evaluate_with(validation.routing);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() /
                         static_cast<double>(validation.result.windows);
  window_seconds_ = std::min(window_seconds_.value_or(seconds), seconds);  // the first is slow
  if (!is_last || !routes_in_several_ways()) return validation;
  validation.other_routing = validation.routing == experts::RoutingMode::kGreedy
                                 ? experts::RoutingMode::kPriced
                                 : experts::RoutingMode::kGreedy;
  validation.other = evaluate_with(validation.other_routing);
  validation.balanced = evaluate_with(experts::RoutingMode::kBalanced);
  return validation;
}

void TrainingRun::validate() {
  const int64_t step = trainer_.state().step;
  if (data_.valid == nullptr || validated_at_ == step) return;
  tell_last_step();
  const batches::EvalWindows windows(data_.valid, config_.model.context, config_.model.context);
  const bool is_last = step >= config_.training.steps;
  const uint64_t most =
      is_last ? windows_of_last(windows) : windows_of(config_.training.validate_batches);
  validation_.reset();  // what experts got is large: the last one makes room
  validation_ = evaluate_on(windows, most, is_last ? Extent::kLast : Extent::kUsual);
  if (reporter_) reporter_->validation(step, *validation_, data_.valid->floor_per_token());
  if (is_last) keep_validation(windows);
  validated_at_ = step;
}

void TrainingRun::keep_validation(const batches::EvalWindows& windows) {
  const auto write = [&] {
    if (directory_ == nullptr) return;
    record::write_validation(directory_->validation(),
                             inference::last_validation({.config = config_,
                                                         .step = trainer_.state().step,
                                                         .windows = windows,
                                                         .tokenizer = data_.tokenizer.get(),
                                                         .routings = validation_->by_routing()}));
  };
  comm::all_or_none(workers_, write, {"validation.json"});
  validation_->result.previous_tokens.clear();  // large, and in the file
  if (validation_->other) validation_->other->previous_tokens.clear();
}

void TrainingRun::sample() {
  const int64_t step = trainer_.state().step;
  const config::TrainingConfig& t = config_.training;
  if (data_.tokenizer == nullptr || t.sample_tokens == 0 || sampled_at_ == step) return;
  tell_last_step();
  std::vector<tokenizer::TokenId> prompt;
  data_.tokenizer->encode(t.sample_prompt, prompt);
  const inference::GenerationOptions options{
      .max_tokens = t.sample_tokens,
      .sampling = {.temperature = 0.8},
      .seed = static_cast<uint64_t>(t.seed + step),
      .routing = experts::parse_routing_mode(config::name_of(config_.experts.tested_routing())),
      .start = tokenizer::start_of_text(*data_.tokenizer, loading::framing_of(data_.identity))};
  const auto written = inference::generate(trainer_.model(), place_, data_.tokenizer->end_of_text(),
                                           {prompt}, options);
  sample_ = replace_invalid_utf8(t.sample_prompt + data_.tokenizer->decode(written.front()));
  if (reporter_) reporter_->sample(step, sample_);
  sampled_at_ = step;
}

void TrainingRun::save() {
  const int64_t step = trainer_.state().step;
  tell_last_step();
  if (saved_at_ == step) return;
  compare_workers();
  if (reporter_) reporter_->sync();
  checkpoint_ = save_training(
      run_ / "checkpoints",
      {config_, trainer_.model(), trainer_.table(), trainer_.state(), data_.identity}, grid_);
  saved_at_ = step;
}

// Checkpoints are written only by workers that agree. Where workers have drifted apart, going on
// from the newest checkpoint mends it. So the job ends with a code after which it is started again.
void TrainingRun::compare_workers() {
  if (workers_.size() == 1) return;
  tell_last_step();
  const parameters::ParameterTable& table = trainer_.table();
  // Master weights that are divided are nobody else's.
  const at::Tensor& weights = table.is_whole(table.master()) ? table.master() : table.working();
  std::vector<comm::NamedTensor> shared, parts;
  for (const parameters::Segment& segment : table.segments()) {
    if (segment.owner == parameters::Owner::kExpert) continue;
    (segment.owner == parameters::Owner::kShard ? parts : shared)
        .push_back({segment.name, table.view(weights, segment)});
  }
  try {
    comm::check_equal(workers_, shared, {"shared parameters"});
    comm::check_equal(grid_.replicas(), parts, {"parameters of shards"});
  } catch (const comm::SharedError& error) {
    throw comm::WorkersLost(fmt::format("worker {}: {}", workers_.rank(), error.what()));
  }
}

void TrainingRun::tell_last_step() {
  const std::optional<StepStats> stats = std::exchange(untold_, std::nullopt);
  if (stats && reporter_) reporter_->step(*stats);
}

void TrainingRun::after_step(const StepStats& stats) {
  untold_ = stats;  // until something else is told of, or the next step is under way
  const bool is_last = stats.step >= config_.training.steps;
  if (is_due(stats.step, config_.training.compare_every)) compare_workers();
  if (is_last) save();  // the last validation is long: whoever ends it ends no training
  try {
    if (is_last || is_due(stats.step, config_.training.validate_every)) validate();
    if (is_last || is_due(stats.step, config_.training.sample_every)) sample();
  } catch (
      const comm::SharedError&) {  // whatever is wrong there, the training done so far is not lost
    save();
    throw;
  } catch (...) {
    if (workers_.size() == 1) save();  // with others, which may be waiting elsewhere
    throw;
  }
  if (is_last || is_due(stats.step, config_.checkpoint.every)) save();
}

bool TrainingRun::must_stop(const StopSignal& signal) const {
  const double limit = config_.training.max_time;
  const bool late =
      limit > 0 && std::chrono::duration<double>(Clock::now() - started_).count() >= limit;
  // All stop after the same step, whoever was asked.
  return comm::on_any_worker(workers_, signal.requested() || late, {"stop or go on"});
}

// Whether the last validation was ended before it was written.
bool TrainingRun::lacks_validation() const {
  return comm::on_any_worker(
      workers_, directory_ != nullptr && !std::filesystem::exists(directory_->validation()),
      {"validation.json"});
}

TrainSummary TrainingRun::go(int64_t profiled_steps) {
  const StopSignal signal;
  if (directory_ != nullptr) reporter_.emplace(*directory_, trainer_, memory_);
  if (trainer_.state().step >= config_.training.steps) {
    if (reporter_)
      log_info("{} is finished already; --training.steps with a larger number would go on",
               run_.string());
    if (lacks_validation()) validate();
    return summary(std::nullopt);
  }
  if (directory_ != nullptr) directory_->remove_validation();  // that of an earlier end
  std::optional<double> last_loss;
  StepProfile profile(profiled_steps, config_.training.steps - trainer_.state().step,
                      directory_ != nullptr ? run_ / "profile.json" : fs::path());
  try {
    while (trainer_.state().step < config_.training.steps && !must_stop(signal)) {
      const StepStats stats = profile.step(trainer_, [this] { tell_last_step(); });
      last_loss = stats.loss;
      after_step(stats);
    }
  } catch (...) {  // a step failed; the one before it may be untold
    try {
      tell_last_step();
    } catch (const std::exception& error) {
      log_warning("step {} could not be told of: {}", trainer_.state().step, error.what());
    }
    throw;
  }
  save();
  profile.finish();
  reporter_.reset();
  return summary(last_loss);
}

TrainSummary TrainingRun::summary(std::optional<double> last_loss) {
  const TrainingState& state = trainer_.state();
  TrainSummary s;
  s.run = run_;
  s.checkpoint = checkpoint_;
  s.step = state.step;
  s.tokens = state.tokens;
  s.skipped = state.guard.skipped;
  s.parameters = model::model_size(config_).total;
  s.workers = workers_.size();
  s.seconds = state.seconds;
  s.loss = last_loss;
  s.predicted_memory = predict_memory(config_, place_, workers_.size()).total();
  if (last_loss) s.peak_memory = memory_.peak();
  s.finished = state.step >= config_.training.steps;
  s.validation = std::move(validation_);
  s.layers = config::layers_in_words(config_);
  if (data_.valid != nullptr) {
    s.floor_per_token = data_.valid->floor_per_token();
    s.floor_per_byte = data_.valid->floor_per_byte();
  }
  s.sample = sample_;
  return s;
}

}  // namespace ballast::training
