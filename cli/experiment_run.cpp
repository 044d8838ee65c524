// SPDX-License-Identifier: Apache-2.0
#include "cli/experiment_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "ballast/studio/experiments/run_outcome.h"
#include "ballast/studio/experiments/stages.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "cli/experiment_children.h"
#include "cli/experiment_table.h"

namespace ballast::cli {
namespace {

using experiments::Stage;
using Clock = std::chrono::steady_clock;

constexpr size_t kLinesOfFailure = 8;
constexpr int64_t kFewestToMeasure = 8;  // where the time to measure is too short for a few

class Conductor {
 public:
  Conductor(record::Experiment& experiment, const ExperimentPlace& place)
      : experiment_(experiment), place_(place), expected_(experiments::seconds_left(experiment)) {}

  ExperimentEnd run() {
    make_folder(place_.folder / "logs");
    for (std::vector<Stage> stages = next(); !stages.empty() && !stop_.requested(); stages = next())
      run(stages);
    ExperimentEnd end{stop_.requested(), {failed_.begin(), failed_.end()}};
    if (end.was_stopped) return end;
    for (const record::SystemRecord& system : experiment_.systems) {
      if (system.status == record::Progression::kTrained || failed_.contains(system.id)) continue;
      log_warning(
          "{}: all learning rates diverged: choose another --out and a lower "
          "--optimizer.learning_rate",
          system.id);
      end.failed.push_back(system.id);
    }
    return end;
  }

 private:
  std::vector<Stage> next() {
    const bool must_measure = std::ranges::any_of(experiment_.systems, [&](const auto& system) {
      return system.status == record::Progression::kPlanned && !failed_.contains(system.id);
    });
    if (!must_measure) fix_lengths();
    std::vector<Stage> stages = experiments::next_stages(experiment_, failed_, {});
    if (!stages.empty() || experiment_.seeds == 1) return stages;
    return experiments::next_stages(experiment_, failed_, best_systems(experiment_, place_.folder));
  }

  void fix_lengths() {
    const bool is_first = !experiment_.training_seconds;
    experiments::fix_steps(experiment_, place_.epochs_of_step);
    experiments::skip_sweeps(experiment_);
    save();
    if (!is_first || !experiment_.training_seconds) return;
    if (*experiment_.training_seconds < experiment_.budget_seconds) {
      log_warning(
          "every system trains for {} instead of {}: longer, and one would see its data "
          "more than {} times (--max-epochs)",
          format_duration(*experiment_.training_seconds),
          format_duration(experiment_.budget_seconds), experiment_.max_epochs);
    }
  }

  void run(const std::vector<Stage>& stages) {
    std::vector<ChildCommand> commands;
    for (const Stage& stage : stages) {
      make_folder((place_.folder / stage.run).parent_path());
      commands.push_back({command_of(stage), log_of(stage)});
    }
    // Steps are measured with nothing else running.
    const bool is_alone = stages.front().purpose == experiments::RunPurpose::kMeasure;
    ChildWatch watch;
    watch.at_once = is_alone ? 1 : experiment_.at_once;
    watch.started = [&](size_t i) { announce(stages[i]); };
    watch.has_ended = [&](size_t i, int code) { take(stages[i], code); };
    run_children(commands, watch, stop_);
  }

  record::SystemRecord& record_of(const Stage& stage) {
    return *std::ranges::find(experiment_.systems, stage.system, &record::SystemRecord::id);
  }

  fs::path log_of(const Stage& stage) const {
    std::string name = stage.run;
    std::ranges::replace(name, '/', '-');
    return place_.folder / "logs" / (name + ".log");
  }

  std::vector<std::string> command_of(const Stage& stage) {
    const record::SystemRecord& system = record_of(stage);
    std::map<std::string, std::string> knobs = system.knobs;
    const experiments::RunLength length{
        stage.purpose,
        stage.steps,
        stage.seed,
        system.steps.value_or(0),
        stage.learning_rate,
        system.step_seconds.value_or(0),
        experiments::validations_of(experiment_, place_.split_batches)};
    for (const auto& [key, value] : experiments::knobs_of(length)) knobs[key] = value;
    for (const auto& [key, value] : place_.given) knobs[key] = value;
    if (stage.purpose == experiments::RunPurpose::kMeasure)
      knobs["training.max_time"] =
          fmt::format("{}", experiments::seconds_of_measuring(experiment_));
    std::vector<std::string> words = {"train", "--run", (place_.folder / stage.run).string(),
                                      "--resume", "auto"};
    if (experiment_.workers > 1)
      words.insert(words.end(), {"--workers", std::to_string(experiment_.workers)});
    for (const auto& [key, value] : knobs) words.push_back(fmt::format("--{}={}", key, value));
    return words;
  }

  void announce(const Stage& stage) {
    const experiments::StageCount count = experiments::count_stages(experiment_);
    std::string what = "measuring its steps";
    if (stage.purpose != experiments::RunPurpose::kMeasure) {
      what = fmt::format("{}, {} steps, learning rate {:.3g}{}",
                         stage.purpose == experiments::RunPurpose::kSweep ? "sweep" : "training",
                         stage.steps, stage.learning_rate,
                         stage.seed > 1 ? fmt::format(", seed {}", stage.seed) : "");
    }
    log_info("[{}/{}] {}: {} | {} | all in {}", count.done + 1 + running_, count.all, stage.system,
             what, "about " + format_duration(stage.seconds), format_duration(left()));
    ++running_;
  }

  // What is expected of the rest, by how long what is done has taken.
  double left() const {
    const double rest = experiments::seconds_left(experiment_), done = expected_ - rest;
    const double taken = std::chrono::duration<double>(Clock::now() - start_).count();
    constexpr double kEnoughToJudge = 30;
    return done > kEnoughToJudge ? rest * taken / done : rest;
  }

  void take(const Stage& stage, int code) {
    --running_;
    if (stage.purpose == experiments::RunPurpose::kMeasure) return take_measured(stage, code);
    const experiments::RunOutcome outcome = experiments::read_outcome(place_.folder / stage.run);
    const bool is_done = code == 0 && outcome.step >= stage.steps;
    if (stage.purpose == experiments::RunPurpose::kSweep)
      return take_swept(stage, code, outcome, is_done);
    if (!is_done || !outcome.best()) return fail_or_stop(stage, code);
    experiments::record_trained(record_of(stage), {stage.seed, stage.run});
    save();
    log_info("    {}: perplexity {} after {} of training", stage.system,
             perplexity_in_words(record_of(stage), experiment_, place_.folder),
             format_duration(outcome.seconds));
    warn_of_drift(stage, outcome);
  }

  // The budget is equal by the measured times. Where a run's steps took another time, the user is
  // told.
  void warn_of_drift(const Stage& stage, const experiments::RunOutcome& outcome) {
    constexpr double kMuch = 1.25;
    const double expected =
        static_cast<double>(stage.steps) * record_of(stage).step_seconds.value();
    const double ratio = outcome.seconds / expected;
    if (experiment_.at_once > 1 || (ratio < kMuch && ratio > 1 / kMuch)) return;
    log_warning(
        "the steps of {} took {:.2f} times as long as when they were measured: was "
        "anything else running, then or now?",
        stage.system, ratio);
  }

  void take_measured(const Stage& stage, int code) {
    experiments::RunOutcome outcome = experiments::read_outcome(place_.folder / stage.run);
    // The first time may have gone into the start, the second tells how many steps to take.
    for (int again = 0; again < 2 && code == 0 && !stop_.requested(); ++again) {
      const int64_t wanted = steps_to_measure(outcome);
      if (2 * std::ssize(outcome.step_seconds) >= wanted) break;
      code = measure(stage, wanted);
      outcome = experiments::read_outcome(place_.folder / stage.run);
    }
    const bool is_over = code == 0 || outcome.was_skipped;  // diverged steps take as long as others
    if (!is_over || stop_.requested() || !outcome.settled_step_seconds())
      return fail_or_stop(stage, code);
    keep_measured(stage, outcome);
  }

  void keep_measured(const Stage& stage, const experiments::RunOutcome& outcome) {
    record::SystemRecord& system = record_of(stage);
    const double seconds = outcome.settled_step_seconds().value();
    experiments::record_step_time(
        system, {seconds, outcome.early_step_seconds(), outcome.settled_step_parts()});
    save();
    fs::remove_all(place_.folder / "measured");  // one is measured at a time
    log_info("    {}: {:.2f} ms a step, {:.2f} right after the start, {} tokens/s", stage.system,
             1e3 * seconds, 1e3 * system.early_step_seconds.value_or(seconds),
             format_count(static_cast<double>(system.tokens_per_step) / seconds));
  }

  // As many as there is time for, by what is known of them.
  int64_t steps_to_measure(const experiments::RunOutcome& outcome) const {
    const std::optional<double> seconds = outcome.settled_step_seconds();
    if (!seconds) return kFewestToMeasure;
    return std::clamp(static_cast<int64_t>(experiments::seconds_to_measure(experiment_) / *seconds),
                      kFewestToMeasure, experiments::kStepsToMeasure);
  }

  // Once more, so many steps without a limit of time; the exit code.
  int measure(const Stage& stage, int64_t steps) {
    fs::remove_all(place_.folder / stage.run);
    ChildCommand command{command_of(stage), log_of(stage)};
    command.arguments.emplace_back("--training.max_time=0");
    command.arguments.push_back(fmt::format("--training.steps={}", steps));
    ChildWatch watch;
    int code = 0;
    watch.started = [](size_t) {};
    watch.has_ended = [&](size_t, int its) { code = its; };
    run_children({command}, watch, stop_);
    return code;
  }

  void take_swept(const Stage& stage, int code, const experiments::RunOutcome& outcome,
                  bool is_done) {
    record::SweptRate rate{stage.learning_rate, stage.steps, std::nullopt};
    const bool has_diverged = code != 0 && outcome.was_skipped;
    if (!is_done && !has_diverged) return fail_or_stop(stage, code);
    if (is_done && outcome.best()) rate.loss = outcome.best()->loss;
    experiments::record_swept(record_of(stage), rate, experiment_);
    save();
    fs::remove_all(place_.folder / stage.run / "checkpoints");  // its loss is all that is wanted
    log_info("    {}: learning rate {:.3g}: {}", stage.system, stage.learning_rate,
             rate.loss ? fmt::format("loss {:.4f}", *rate.loss) : "diverged");
  }

  void fail_or_stop(const Stage& stage, int code) {
    if (stop_.requested()) return;
    failed_.insert(stage.system);
    log_warning("{} failed with code {}; the last lines of {}:\n{}", stage.system, code,
                log_of(stage).string(), last_lines(log_of(stage), kLinesOfFailure));
  }

  void save() const {
    record::save_experiment(place_.folder / record::kExperimentFile, experiment_);
  }

  record::Experiment& experiment_;
  const ExperimentPlace& place_;
  const StopSignal stop_;
  std::set<std::string> failed_;
  double expected_;
  int64_t running_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

ExperimentEnd run_experiment(record::Experiment& experiment, const ExperimentPlace& place) {
  return Conductor(experiment, place).run();
}

std::vector<std::string> best_systems(const record::Experiment& experiment,
                                      const fs::path& folder) {
  std::vector<std::pair<double, std::string>> ranked;
  for (const record::SystemRecord& system : experiment.systems) {
    if (system.runs.empty()) continue;
    const auto best = experiments::read_outcome(folder / system.runs.front().run).best();
    if (best) ranked.emplace_back(best->loss, system.id);
  }
  std::ranges::sort(ranked);
  std::vector<std::string> ids;
  for (size_t i = 0; i < std::min<size_t>(experiments::kSystemsWithSeeds, ranked.size()); ++i)
    ids.push_back(ranked[i].second);
  return ids;
}

}  // namespace ballast::cli
