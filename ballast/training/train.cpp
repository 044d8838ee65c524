// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/train.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "ballast/checkpoint/step_folders.h"
#include "ballast/comm/agreement.h"
#include "ballast/comm/texts.h"
#include "ballast/config/system_words.h"
#include "ballast/loading/loaded_model.h"
#include "ballast/loading/model_of_checkpoint.h"
#include "ballast/model/model_size.h"
#include "ballast/model/update_counts.h"
#include "ballast/record/hardware.h"
#include "ballast/record/run_directory.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "ballast/system/version.h"
#include "ballast/training/data_identity.h"
#include "ballast/training/initial_model.h"
#include "ballast/training/run_memory.h"
#include "ballast/training/schedule.h"
#include "ballast/training/training_data.h"
#include "ballast/training/training_run.h"

namespace ballast::training {
namespace {

using config::Config;

// The request's file and knobs, on top of the shape of the model that it starts from, if any.
Config with_request(const std::optional<Config>& source, const TrainRequest& request) {
  Config config;
  if (source) take_shape(*source, config);
  if (!request.config_file.empty())
    config::read_config_file(config, request.config_file, request.scale);
  for (const auto& [key, value] : request.overrides) config::set_knob(config, key, value);
  // Whoever leaves the experts out need not say so of their router too.
  if (source && config.experts.layers == 0 && config.experts.router == source->experts.router)
    config.experts.router = config::ExpertsConfig().router;
  config::check_config(config);
  return config;
}

record::RunStart run_start(const TrainRequest& request, int64_t step, int workers) {
  return {.step = static_cast<uint64_t>(step),
          .program_version = version(),
          .command_line = request.command_line,
          .hardware = record::describe_hardware().dump(),
          .workers = workers};
}

const char* precision_name(at::ScalarType type) {
  return type == at::kDouble ? "fp64" : type == at::kBFloat16 ? "bf16" : "fp32";
}

void announce_experts(const Config& config, const model::ModelSize& size) {
  const config::ExpertsConfig& e = config.experts;
  if (e.layers == 0) return;
  log_info(
      "{}: layers of {} experts with {} sublayer(s) {}; {} parameters shared, {} an expert, {} "
      "active for a token; {} routing group(s)",
      config::system_in_words(config), e.count, e.sublayers_of_layer(),
      config::places_in_words(config), format_count(double(size.shared)),
      format_count(double(size.per_expert)), format_count(double(size.active)), e.groups);
  log_info("router: {}", config::frame_in_words(e));
}

void announce(const Config& config, const std::filesystem::path& run, const Trainer& trainer,
              const comm::World& world) {
  if (trainer.workers().rank() != 0) return;
  const model::ModelSize size = model::model_size(config);
  log_info("model: {} parameters, {} layers of width {}, vocabulary {}, context {}",
           format_count(double(size.total)), config.model.layers, config.model.width,
           config.model.vocabulary, config.model.context);
  if (!config.training.freeze.empty()) {
    log_info("trained: {} of the parameters; frozen: {}",
             format_count(double(model::count_updates(config).trained())),
             fmt::join(config.training.freeze, ", "));
  }
  announce_experts(config, size);
  const double tokens = static_cast<double>(config.training.steps) *
                        static_cast<double>(config.training.batch * config.model.context);
  const int workers = trainer.workers().size(), shards = trainer.grid().num_shards();
  log_info("training: {} steps of {} x {} tokens, {} in all ({:.1f} epochs), on {} in {}{}",
           config.training.steps, config.training.batch, config.model.context, format_count(tokens),
           trainer.batches().epochs(0, static_cast<uint64_t>(config.training.steps)),
           trainer.place().device.str(), precision_name(trainer.place().working),
           workers > 1 ? fmt::format(", by {} workers over {}{}", workers, world.transport(),
                                     shards > 1 ? fmt::format(", model parallel x{}", shards) : "")
                       : "");
  log_info("predicted memory{}: {}", workers > 1 ? " of a worker" : "",
           memory_in_words(predict_memory(config, trainer.place(), workers)));
  const std::string warm_up = long_warm_up(config.training.steps, config.optimizer);
  if (!warm_up.empty()) log_warning("{}", warm_up);
  log_info("run directory: {}", run.string());
}

// Every knob, the version, and what else must be the same on all workers before the first step.
void check_alike(comm::Communicator& workers, const Config& config, const std::string& run,
                 const std::string& checkpoint) {
  std::vector<comm::Fact> facts = {{"the program's version", version()},
                                   {"the run directory", run},
                                   {"the checkpoint", checkpoint}};
  for (const auto& [name, value] : config::knob_values(config)) facts.push_back({name, value});
  comm::check_agreement(workers, facts, {"start"});
}

// The data decides shapes and what is learned: it must be the same for all, too.
void check_same_data(comm::Communicator& workers, const Config& config, const TrainingData& data) {
  std::vector<comm::Fact> facts = {{"model.vocabulary", std::to_string(config.model.vocabulary)}};
  for (size_t i = 0; i < data.train.size(); ++i)
    facts.push_back({config.data.train.at(i), tokens::fingerprint_text(*data.train[i].tokens)});
  facts.push_back(
      {"the validation data", data.valid ? tokens::fingerprint_text(*data.valid) : "none"});
  facts.push_back(
      {"the tokenizer", data.tokenizer ? tokens::fingerprint_text(*data.tokenizer) : "none"});
  comm::check_agreement(workers, facts, {"data"});
}

// Opens the run's data and fits the model's vocabulary to it.
TrainingData open_data(Config& config, const std::filesystem::path& run) {
  TrainingData data = open_training_data(config.data, run / "data");
  fit_vocabulary(config.model, data);
  if (data.valid != nullptr) {  // what cannot be read is found now, not after hours
    batches::EvalWindows(data.valid, config.model.context, config.model.context).at(0, 1);
  }
  return data;
}

void warn_of_unused_vocabulary(const config::ModelConfig& model, const TrainingData& data) {
  if (data.vocabulary > 0 && model.vocabulary >= 2 * data.vocabulary)
    log_warning("the model knows {} tokens, the data has {}: is this the data it is for (--data)?",
                model.vocabulary, data.vocabulary);
}

// Worker 0 prepares what is missing, checks it and keeps the tokenizer in the run; then all open
// it.
TrainingData open_data_together(Config& config, const std::filesystem::path& run,
                                comm::Communicator& workers,
                                const std::function<void(const TrainingData&)>& check) {
  TrainingData data;
  comm::all_or_none(workers,
                    [&] {
                      if (workers.rank() != 0) return;
                      data = open_data(config, run);
                      check(data);
                      warn_of_unused_vocabulary(config.model, data);
                      if (data.tokenizer == nullptr) return;
                      make_folder(run / "tokenizer");
                      data.tokenizer->save(run / "tokenizer");
                    },
                    {"prepare data"});
  comm::all_or_none(workers,
                    [&] {
                      if (workers.rank() != 0) data = open_data(config, run);
                    },
                    {"open data"});
  check_same_data(workers, config, data);
  config::check_model_parallel(config, workers.size());  // the vocabulary is known now
  return data;
}

void resolve_groups(Config& config, comm::Communicator& workers) {
  config::check_workers(config, workers.size());
  if (config.experts.layers > 0 && config.experts.groups == 0)
    config.experts.groups = workers.size();
  config::check_workers(config, workers.size());
}

// To train on other data is what weights are taken for. Another tokenizer, whose ids mean other
// text, is hardly ever meant.
void warn_of_other_tokenizer(const checkpoint::Manifest& manifest, const TrainingData& data) {
  const auto is_tokenizer = [](const checkpoint::DataEntry& entry) {
    return entry.role == "tokenizer";
  };
  const auto before = std::ranges::find_if(manifest.data, is_tokenizer);
  const auto now = std::ranges::find_if(data.identity, is_tokenizer);
  if (before == manifest.data.end() || now == data.identity.end()) return;
  if (before->fingerprint != now->fingerprint)
    log_warning("the weights were trained with another tokenizer ({}) than the data has ({})",
                before->fingerprint, now->fingerprint);
}

void initialize_from(TrainingRun& training, const TrainRequest& request, const TrainingData& data,
                     comm::Communicator& workers) {
  const Config& config = training.trainer().config();
  std::optional<InitialWeights> initial;  // worker 0's
  const auto make_them = [&] {
    if (workers.rank() == 0) initial.emplace(request.initial_weights, config, request.run);
  };
  comm::all_or_none(workers, make_them, {"initial weights"});
  const std::string path =
      comm::gather_texts(workers, initial ? initial->path().string() : "", {"initial weights"})
          .front();
  const checkpoint::Checkpoint checkpoint = loading::open_together(path, workers);
  InitializedFrom result;
  const auto take_them = [&] { result = training.initialize_from(checkpoint, request.upcycling); };
  comm::all_or_none(workers, take_them, {"initial weights"});
  training.save_start();
  if (workers.rank() != 0) return;
  log_info("weights from {}", request.initial_weights.string());
  warn_of_other_tokenizer(checkpoint.manifest(), data);
  if (!result.fresh.empty()) log_info("not in them, fresh: {}", fmt::join(result.fresh, ", "));
  if (!result.left_out.empty())
    log_warning("not part of this model, left out: {}", fmt::join(result.left_out, ", "));
}

TrainSummary start_new(const TrainRequest& request, comm::World& world) {
  comm::Communicator& workers = world.everyone();
  Config config;
  comm::all_or_none(workers, [&] { config = resolve_config(request); }, {"config"});
  check_alike(workers, config, request.run.string(), "");
  resolve_groups(config, workers);
  if (!config.training.freeze.empty()) model::count_updates(config);  // refuses names of nothing
  const bool was_there = fs::exists(request.run);
  std::optional<record::RunDirectory> run;  // worker 0's
  comm::all_or_none(
      workers,
      [&] {
        if (workers.rank() == 0)
          run.emplace(record::RunDirectory::create(request.run, config::to_toml(config),
                                                   run_start(request, 0, workers.size())));
      },
      {"run directory"});
  TrainingData data;
  std::optional<TrainingRun> training;
  try {
    comm::check_same_folder(workers, request.run, {"run directory"});
    data = open_data_together(config, request.run, workers, [](const TrainingData&) {});
    if (run) run->store_config(config::to_toml(config));
    training.emplace(config, request.run, run ? &*run : nullptr, data, world);
    if (!request.initial_weights.empty()) initialize_from(*training, request, data, workers);
  } catch (...) {  // nothing was computed: leave things as they were
    if (run) run->clear();
    std::error_code ignored;
    if (run && !was_there) fs::remove(run->path(), ignored);
    throw;
  }
  announce(config, request.run, training->trainer(), world);
  return training->go(request.profiled_steps);
}

enum class SameData { kByPath, kByContent };

// What the request wants must be what the run was started with, but for how it is watched and kept.
// Data that is compared by its content may lie elsewhere.
Config resumed_config(const TrainRequest& request, Config stored, SameData same_data) {
  Config wanted = stored;
  if (!request.config_file.empty()) {
    // The model that it started from may be gone; the run has its shape.
    wanted = with_request(request.initial_weights.empty() ? std::nullopt : std::optional(stored),
                          request);
  } else {
    for (const auto& [key, value] : request.overrides) config::set_knob(wanted, key, value);
    config::check_config(wanted);
  }
  // "0: as many as ..." was resolved at the first start.
  if (wanted.model.vocabulary == 0) wanted.model.vocabulary = stored.model.vocabulary;
  if (wanted.model.separator < 0) wanted.model.separator = stored.model.separator;
  if (wanted.experts.groups == 0) wanted.experts.groups = stored.experts.groups;
  if (same_data == SameData::kByContent) {
    stored.data.train = wanted.data.train;
    stored.data.valid = wanted.data.valid;
  }
  const auto changes = config::differences(stored, wanted, config::Compare::kWhatIsComputed);
  if (!changes.empty()) {
    fail(
        "{} was trained with another configuration: {}. Start a new run directory for it, or leave "
        "these as they were",
        request.run.string(), fmt::join(changes, "; "));
  }
  return wanted;
}

// The newest checkpoint that verifies, or none where the run died before its first. Where there are
// some and none verifies, going on would destroy the run's record: that is for the user to decide.
std::optional<checkpoint::Checkpoint> newest_checkpoint(const record::RunDirectory& run) {
  for (const std::string& name : checkpoint::remove_leftovers(run.checkpoints()))
    log_info("removed unfinished {}", name);
  checkpoint::NewestValid newest = checkpoint::find_newest_valid(run.checkpoints());
  for (const checkpoint::PassedOver& bad : newest.passed_over)
    log_warning("passed over: {}", bad.reason);
  if (!newest.checkpoint && !newest.passed_over.empty()) {
    fail(
        "no checkpoint in {} can be used (see above): start a new run directory, or move these "
        "away to start this one again",
        run.checkpoints().string());
  }
  return std::move(newest.checkpoint);
}

TrainSummary resume_run(const TrainRequest& request, comm::World& world) {
  comm::Communicator& workers = world.everyone();
  std::optional<record::RunDirectory> run;  // worker 0's
  std::string newest, stored_text;
  std::vector<checkpoint::DataEntry> trained_on;  // on worker 0
  comm::all_or_none(
      workers,
      [&] {
        if (workers.rank() != 0) return;
        run.emplace(record::RunDirectory::open(request.run));
        const std::optional<checkpoint::Checkpoint> checkpoint = newest_checkpoint(*run);
        if (checkpoint) newest = checkpoint->path().string();
        if (checkpoint) trained_on = checkpoint->manifest().data;
        stored_text = checkpoint ? checkpoint->manifest().config : run->stored_config();
      },
      {"run directory"});
  comm::check_same_folder(workers, request.run, {"run directory"});
  newest = comm::gather_texts(workers, newest, {"checkpoint"}).front();
  stored_text = comm::gather_texts(workers, stored_text, {"config"}).front();
  const std::string knows_data =
      comm::gather_texts(workers, trained_on.empty() ? "" : "yes", {"data of the checkpoint"})
          .front();
  const bool by_content = !knows_data.empty() || request.allow_other_data;
  Config config;
  comm::all_or_none(workers,
                    [&] {
                      Config stored;
                      config::read_recorded_config(stored, stored_text,
                                                   newest.empty() ? request.run.string() : newest);
                      config = resumed_config(
                          request, stored, by_content ? SameData::kByContent : SameData::kByPath);
                      if (!newest.empty())
                        loading::check_model_of(checkpoint::Checkpoint(newest), config);
                    },
                    {"config"});
  check_alike(workers, config, request.run.string(), newest);
  resolve_groups(config, workers);
  TrainingData data =
      open_data_together(config, request.run, workers, [&](const TrainingData& found) {
        if (newest.empty() || request.allow_other_data) return;
        check_data_of_run(request.run, trained_on, found);
      });
  TrainingRun training(config, request.run, run ? &*run : nullptr, data, world);
  if (!newest.empty()) {
    comm::all_or_none(workers, [&] { training.resume(checkpoint::Checkpoint(newest)); },
                      {"load checkpoint"});
  }
  if (run) {
    log_info("{}", newest.empty() ? fmt::format("no checkpoint in {}: starting from step 0",
                                                request.run.string())
                                  : "resuming from " + newest);
    run->store_config(config::to_toml(config));
    run->record_start(run_start(request, training.trainer().state().step, workers.size()));
  }
  announce(config, request.run, training.trainer(), world);
  return training.go(request.profiled_steps);
}

}  // namespace

Config resolve_config(const TrainRequest& request) {
  std::optional<Config> source;
  if (!request.initial_weights.empty()) {
    int64_t context = 0;  // that is asked for: a folder of Hugging Face's may fit that one only
    for (const auto& [key, value] : request.overrides) {
      Config asked;
      if (key == "model.context") config::set_knob(asked, key, value);
      if (key == "model.context") context = asked.model.context;
    }
    source = config_of_source(request.initial_weights, context);
  }
  return with_request(source, request);
}

TrainSummary train(const TrainRequest& request, comm::World& world) {
  comm::Communicator& workers = world.everyone();
  const bool is_run =
      comm::gather_texts(workers, record::RunDirectory::is_run(request.run) ? "run" : "",
                         {"run directory"})
          .front() == "run";
  if (is_run && request.resume == Resume::kAuto) return resume_run(request, world);
  if (is_run) {
    throw comm::SharedError(
        fmt::format("{} holds a run already: add --resume auto to go on with it, or choose another "
                    "--run",
                    request.run.string()));
  }
  if (request.resume == Resume::kAuto && workers.rank() == 0)
    log_info("no run in {}: starting a new one", request.run.string());
  return start_new(request, world);
}

}  // namespace ballast::training
