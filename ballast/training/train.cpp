// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/train.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "ballast/checkpoint/step_folders.h"
#include "ballast/inference/generate.h"
#include "ballast/model/model_size.h"
#include "ballast/report/hardware.h"
#include "ballast/report/run_directory.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "ballast/system/stop_signal.h"
#include "ballast/system/utf8.h"
#include "ballast/system/version.h"
#include "ballast/training/run_reporter.h"
#include "ballast/training/trainer.h"
#include "ballast/training/training_data.h"

namespace ballast {
namespace {

using Clock = std::chrono::steady_clock;

bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

// A run under way: the trainer, what it reports to, and when it validates, samples and saves.
class TrainingRun {
 public:
  TrainingRun(const Config& config, RunDirectory& run, TrainingData& data)
      : config_(config),
        run_(run),
        data_(data),
        place_(choose_place({config.training.device, config.training.precision,
                             config.training.threads, config.training.deterministic})),
        trainer_(config, place_, data.train) {}

  void resume(const Checkpoint& checkpoint) {
    trainer_.resume(checkpoint);
    checkpoint_ = checkpoint.path();
    saved_at_ = trainer_.state().step;
  }
  TrainSummary go();

  const Trainer& trainer() const { return trainer_; }

 private:
  void after_step(const StepStats& stats);
  void validate();
  void sample();
  void save();
  bool must_stop(const StopSignal& signal) const;
  TrainSummary summary(std::optional<double> last_loss) const;

  Config config_;
  RunDirectory& run_;
  TrainingData& data_;
  ComputePlace place_;
  Trainer trainer_;
  std::optional<RunReporter> reporter_;
  std::optional<Evaluation> validation_;
  std::string sample_;
  fs::path checkpoint_;
  int64_t saved_at_ = -1, validated_at_ = -1, sampled_at_ = -1;
  Clock::time_point started_ = Clock::now();  // max_time counts from here, for each start anew
};

void TrainingRun::validate() {
  const int64_t step = trainer_.state().step;
  if (data_.valid == nullptr || validated_at_ == step) return;
  const EvalWindows windows(data_.valid, config_.model.context, config_.model.context);
  const int64_t rows = config_.training.batch / config_.training.micro_steps;
  const auto limit = static_cast<uint64_t>(config_.training.validate_batches * rows);
  validation_ = evaluate(trainer_.model(), place_, windows, data_.valid->info(), {rows, limit});
  reporter_->validation(step, *validation_, data_.valid->floor_per_token());
  validated_at_ = step;
}

void TrainingRun::sample() {
  const int64_t step = trainer_.state().step;
  const TrainingConfig& t = config_.training;
  if (data_.tokenizer == nullptr || t.sample_tokens == 0 || sampled_at_ == step) return;
  std::vector<TokenId> prompt;
  data_.tokenizer->encode(t.sample_prompt, prompt);
  const GenerationOptions options{.max_tokens = t.sample_tokens,
                                  .sampling = {.temperature = 0.8},
                                  .seed = static_cast<uint64_t>(t.seed + step)};
  const auto written =
      generate(trainer_.model(), place_, data_.tokenizer->end_of_text(), {prompt}, options);
  sample_ = replace_invalid_utf8(t.sample_prompt + data_.tokenizer->decode(written.front()));
  reporter_->sample(step, sample_);
  sampled_at_ = step;
}

void TrainingRun::save() {
  const int64_t step = trainer_.state().step;
  if (saved_at_ == step) return;
  reporter_->sync();
  checkpoint_ = save_training(run_.checkpoints(), config_, trainer_.table(), trainer_.state());
  saved_at_ = step;
}

void TrainingRun::after_step(const StepStats& stats) {
  reporter_->step(stats);
  const bool is_last = stats.step >= config_.training.steps;
  try {
    if (is_last || is_due(stats.step, config_.training.validate_every)) validate();
    if (is_last || is_due(stats.step, config_.training.sample_every)) sample();
  } catch (...) {  // whatever is wrong there, the training done so far is not lost
    save();
    throw;
  }
  if (is_last || is_due(stats.step, config_.checkpoint.every)) save();
}

bool TrainingRun::must_stop(const StopSignal& signal) const {
  if (signal.requested()) return true;
  const double limit = config_.training.max_time;
  return limit > 0 && std::chrono::duration<double>(Clock::now() - started_).count() >= limit;
}

TrainSummary TrainingRun::go() {
  const StopSignal signal;
  reporter_.emplace(run_, trainer_);
  if (trainer_.state().step >= config_.training.steps) {
    log_info("{} is finished already; --training.steps with a larger number would go on",
             run_.path().string());
    return summary(std::nullopt);
  }
  std::optional<double> last_loss;
  while (trainer_.state().step < config_.training.steps && !must_stop(signal)) {
    const StepStats stats = trainer_.step();
    last_loss = stats.loss;
    after_step(stats);
  }
  save();
  reporter_.reset();
  return summary(last_loss);
}

TrainSummary TrainingRun::summary(std::optional<double> last_loss) const {
  const TrainingState& state = trainer_.state();
  TrainSummary s;
  s.run = run_.path();
  s.checkpoint = checkpoint_;
  s.step = state.step;
  s.tokens = state.tokens;
  s.skipped = state.guard.skipped;
  s.parameters = trainer_.table().num_parameters();
  s.seconds = state.seconds;
  s.loss = last_loss;
  s.finished = state.step >= config_.training.steps;
  s.validation = validation_;
  if (data_.valid != nullptr) {
    s.floor_per_token = data_.valid->floor_per_token();
    s.floor_per_byte = data_.valid->floor_per_byte();
  }
  s.sample = sample_;
  return s;
}

RunStart run_start(const TrainRequest& request, int64_t step) {
  return {static_cast<uint64_t>(step), version(), request.command_line, describe_hardware().dump()};
}

void announce(const Config& config, const RunDirectory& run, const Trainer& trainer) {
  const ModelSize size = model_size(config.model);
  log_info("model: {} parameters, {} layers of width {}, vocabulary {}, context {}",
           format_count(double(size.parameters)), config.model.layers, config.model.width,
           config.model.vocabulary, config.model.context);
  const auto tokens =
      static_cast<double>(config.training.steps * config.training.batch * config.model.context);
  log_info("training: {} steps of {} x {} tokens, {} in all ({:.1f} epochs), on {} in {}",
           config.training.steps, config.training.batch, config.model.context, format_count(tokens),
           trainer.batches().epochs(0, static_cast<uint64_t>(config.training.steps)),
           trainer.place().device.str(), c10::toString(trainer.place().working));
  log_info("run directory: {}", run.path().string());
}

// Opens the run's data, fits the model's vocabulary to it, and keeps its tokenizer in the run.
TrainingData prepare_data(Config& config, const RunDirectory& run) {
  TrainingData data = open_training_data(config.data, run.path() / "data");
  fit_vocabulary(config.model, data);
  if (data.tokenizer != nullptr) {
    make_folder(run.path() / "tokenizer");
    data.tokenizer->save(run.path() / "tokenizer");
  }
  if (data.valid != nullptr) {  // what cannot be read is found now, not after hours
    EvalWindows(data.valid, config.model.context, config.model.context).at(0, 1);
  }
  return data;
}

TrainSummary start_new(const TrainRequest& request) {
  Config config = resolve_config(request);
  const bool was_there = fs::exists(request.run);
  RunDirectory run = RunDirectory::create(request.run, to_toml(config), run_start(request, 0));
  TrainingData data;
  std::optional<TrainingRun> training;
  try {
    data = prepare_data(config, run);
    run.store_config(to_toml(config));
    training.emplace(config, run, data);
  } catch (...) {  // nothing was computed: leave things as they were
    for (const auto& entry : fs::directory_iterator(run.path())) fs::remove_all(entry);
    if (!was_there) fs::remove(run.path());
    throw;
  }
  announce(config, run, training->trainer());
  return training->go();
}

// What the request wants must be what the run was started with, but for how it is watched and kept.
Config resumed_config(const TrainRequest& request, const RunDirectory& run, const Config& stored) {
  Config wanted = stored;
  if (!request.config_file.empty()) {
    wanted = resolve_config(request);
    if (wanted.model.vocabulary == 0) wanted.model.vocabulary = stored.model.vocabulary;
  } else {
    for (const auto& [key, value] : request.overrides) set_knob(wanted, key, value);
    check_config(wanted);
  }
  const auto changes = differences(stored, wanted, Compare::kWhatIsComputed);
  if (!changes.empty()) {
    fail(
        "{} was trained with another configuration: {}. Start a new run directory for it, or leave "
        "these as they were",
        run.path().string(), fmt::join(changes, "; "));
  }
  return wanted;
}

// The newest checkpoint that verifies, or none where the run died before its first. Where there are
// some and none verifies, going on would destroy the run's record: that is for the user to decide.
std::optional<Checkpoint> newest_checkpoint(const RunDirectory& run) {
  for (const std::string& name : remove_leftovers(run.checkpoints()))
    log_info("removed unfinished {}", name);
  NewestValid newest = find_newest_valid(run.checkpoints());
  for (const PassedOver& bad : newest.passed_over) log_warning("passed over: {}", bad.reason);
  if (!newest.checkpoint && !newest.passed_over.empty()) {
    fail(
        "no checkpoint in {} can be used (see above): start a new run directory, or move these "
        "away to start this one again",
        run.checkpoints().string());
  }
  return std::move(newest.checkpoint);
}

TrainSummary resume_run(const TrainRequest& request) {
  RunDirectory run = RunDirectory::open(request.run);
  const std::optional<Checkpoint> checkpoint = newest_checkpoint(run);
  Config stored;
  if (checkpoint) {
    read_config_text(stored, checkpoint->manifest().config, checkpoint->path().string());
  } else {
    read_config_text(stored, run.stored_config(), run.config().string());
  }
  Config config = resumed_config(request, run, stored);
  TrainingData data = prepare_data(config, run);
  TrainingRun training(config, run, data);
  if (checkpoint) {
    training.resume(*checkpoint);
    log_info("resuming from {}", checkpoint->path().string());
  } else {
    log_info("no checkpoint in {}: starting from step 0", run.path().string());
  }
  run.store_config(to_toml(config));
  run.record_start(run_start(request, training.trainer().state().step));
  announce(config, run, training.trainer());
  return training.go();
}

}  // namespace

Config resolve_config(const TrainRequest& request) {
  Config config;
  if (!request.config_file.empty()) read_config_file(config, request.config_file);
  for (const auto& [key, value] : request.overrides) set_knob(config, key, value);
  check_config(config);
  return config;
}

TrainSummary train(const TrainRequest& request) {
  if (RunDirectory::is_run(request.run)) {
    if (request.resume == Resume::kAuto) return resume_run(request);
    fail("{} holds a run already: add --resume auto to go on with it, or choose another --run",
         request.run.string());
  }
  if (request.resume == Resume::kAuto)
    log_info("no run in {}: starting a new one", request.run.string());
  return start_new(request);
}

}  // namespace ballast
