// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/train.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "ballast/comm/agreement.h"
#include "ballast/comm/notebook.h"
#include "ballast/comm/processes.h"
#include "ballast/comm/texts.h"
#include "ballast/loading/loaded_model.h"
#include "ballast/record/run_directory.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "cli/at_least.h"
#include "cli/command.h"
#include "cli/command_words.h"
#include "cli/commands.h"
#include "cli/expert_table.h"
#include "cli/knob_options.h"
#include "cli/report_page.h"
#include "cli/run_watcher.h"
#include "cli/workers.h"

namespace ballast::cli {
namespace {

constexpr const char* kExamples = R"(
Examples
  A small model on the built-in corpus, four minutes on two cores:
    ballast train --config configs/first_run.toml
  A system of the paper at a size for a laptop (docs/presets.md):
    ballast train --config configs/paper_base_44b.toml --scale laptop
  On your own text, with other sizes and a time limit:
    ballast prepare texts/ --out data/mine --tokenizer bpe
    ballast train --data data/mine --run runs/mine --model.width 256 --model.layers 6 --max-time 2h
  Go on after an interruption (Ctrl-C saves first), or with more steps:
    ballast train --run runs/mine --resume auto
    ballast train --run runs/mine --resume auto --training.steps 20000
  A BASE model of 8 experts by 4 workers on this machine, which goes on if a worker dies:
    ballast train --experts.layers 1 --experts.count 8 --workers 4 --max-restarts 3
  By workers that mpirun or srun starts, on one machine or many:
    mpirun -n 2 ballast train --config configs/first_run.toml --run runs/mine
  A dense model goes on as a sparse one: with a BASE layer that starts as the identity, or with
  experts that start as copies of its feed-forwards:
    ballast train --init-from runs/dense --experts.layers 1 --run runs/sparse
    ballast train --init-from runs/dense --experts.layers 2 --experts.placement replace \
      --experts.router sparsely_gated --upcycle copy --run runs/upcycled
  Fine-tune a model from Hugging Face:
    ballast train --init-from models/Llama-3.2-1B --data data/mine --model.context 1024
  Watch it in a browser while it trains:
    ballast train --config configs/first_run.toml --watch
  See what a run would use, as TOML:
    ballast train --config configs/first_run.toml --print-config

JSON keys (--json): run, checkpoint, finished, step, tokens, seconds, parameters, skipped, loss,
  valid_loss, valid_perplexity, valid_tokens, split_tokens (all that could be validated on),
  whole_split (whether all were), greedy_perplexity, priced_perplexity (of BASE models),
  floor_per_token, floor_per_byte (nats), predicted_memory, peak_memory (bytes), sample, report (its
  page); null where there is none.
The run directory: config.toml, run.json, metrics.jsonl, samples.txt, validation.json, tensorboard/,
  checkpoints/, tokenizer/, report/, profile.json. docs/file_formats.md describes each.
)";

struct Options {
  ConfigOptions config;
  std::string run, resume = "never", max_time, initial_weights, upcycle = "none";
  double upcycle_noise = training::Upcycling().noise;
  WorkerOptions workers;
  WatchOption watch;
  std::vector<std::string> data;
  int64_t profile = 0;
  bool allow_other_data = false, print_config = false, json = false, report = false;
};

// runs/NAME, or runs/NAME-2 and so on: the first that is not there yet. NAME is the config file's,
// with the scale if one was asked for.
std::filesystem::path unused_run_directory(const ConfigOptions& config) {
  std::string name =
      config.file.empty() ? "train" : std::filesystem::path(config.file).stem().string();
  if (!config.scale.empty()) name += "-" + config.scale;
  std::filesystem::path path = std::filesystem::path("runs") / name;
  for (int i = 2; std::filesystem::exists(path); ++i)
    path = std::filesystem::path("runs") / fmt::format("{}-{}", name, i);
  return path;
}

// What the user typed, for the run's record: of workers, what started them.
std::vector<std::string> command_line() {
  std::vector<std::string> words = comm::launcher_command_line();
  if (words.empty()) {
    std::ifstream file("/proc/self/cmdline");
    for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  }
  remove_option(words, kWatchOption, Takes::kNothing);  // who looks on is no part of the run
  return words;
}

training::TrainRequest to_request(const Options& options) {
  training::TrainRequest request;
  request.config_file = options.config.file;
  request.scale = options.config.scale_of_file();
  request.overrides = options.config.overrides();
  if (!options.data.empty())
    request.overrides.emplace_back("data.train", fmt::format("{}", fmt::join(options.data, ",")));
  if (!options.max_time.empty())
    request.overrides.emplace_back("training.max_time", options.max_time);
  if (options.resume == "auto" && options.run.empty())
    fail("--resume auto: name the run to go on with, --run DIR");
  request.resume = options.resume == "auto" ? training::Resume::kAuto : training::Resume::kNever;
  request.initial_weights = options.initial_weights;
  if (options.upcycle == "copy") {
    if (options.initial_weights.empty()) fail("--upcycle copy: name the dense model, --init-from");
    request.upcycling = training::Upcycling{.noise = options.upcycle_noise};
  }
  request.run = options.run;
  request.command_line = command_line();
  request.allow_other_data = options.allow_other_data;
  request.profiled_steps = options.profile;
  return request;
}

// Of a BASE model, with this routing; null: there is none.
const inference::Evaluation* evaluation_of(const training::TrainSummary& s,
                                           experts::RoutingMode mode) {
  if (!s.validation || s.validation->result.experts.empty()) return nullptr;
  if (s.validation->routing == mode) return &s.validation->result;
  return s.validation->other ? &*s.validation->other : nullptr;
}

// The page of `ballast report`; empty: there is none. A run that is trained is not failed by it.
std::filesystem::path page_of(const training::TrainSummary& summary) {
  try {
    return write_report_of({summary.run}, report_folder_of(summary.run)).written.page;
  } catch (const std::exception& error) {
    log_warning("no report was written: {}", error.what());
    return {};
  }
}

void print_json(const training::TrainSummary& s, const std::filesystem::path& page) {
  nlohmann::ordered_json out = {
      {"run", s.run.string()},
      {"checkpoint", s.checkpoint.string()},
      {"finished", s.finished},
      {"step", s.step},
      {"tokens", s.tokens},
      {"seconds", s.seconds},
      {"parameters", s.parameters},
      {"skipped", s.skipped},
      {"loss", s.loss ? nlohmann::ordered_json(*s.loss) : nlohmann::ordered_json()}};
  const auto optional = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  const inference::Evaluation* v = s.validation ? &s.validation->result : nullptr;
  out["valid_loss"] = v ? nlohmann::ordered_json(v->loss) : nlohmann::ordered_json();
  out["valid_perplexity"] = v ? nlohmann::ordered_json(v->perplexity) : nlohmann::ordered_json();
  out["valid_tokens"] = v ? nlohmann::ordered_json(v->tokens) : nlohmann::ordered_json();
  out["split_tokens"] = v ? nlohmann::ordered_json(v->split_tokens) : nlohmann::ordered_json();
  out["whole_split"] = v ? nlohmann::ordered_json(v->is_whole_split()) : nlohmann::ordered_json();
  for (const experts::RoutingMode mode :
       {experts::RoutingMode::kGreedy, experts::RoutingMode::kPriced}) {
    const inference::Evaluation* routed = evaluation_of(s, mode);
    out[fmt::format("{}_perplexity", experts::routing_name(mode))] =
        routed ? nlohmann::ordered_json(routed->perplexity) : nlohmann::ordered_json();
  }
  out["floor_per_token"] = optional(s.floor_per_token);
  out["floor_per_byte"] = optional(s.floor_per_byte);
  out["predicted_memory"] = s.predicted_memory;
  out["peak_memory"] = optional(s.peak_memory);
  out["sample"] = s.sample;
  out["report"] = page.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(page.string());
  fmt::print("{}\n", out.dump(2));
}

void print_summary(const training::TrainSummary& s, const std::filesystem::path& page) {
  fmt::print("\n{} after {} steps, {} tokens, {}\n", s.finished ? "Done" : "Stopped", s.step,
             format_count(static_cast<double>(s.tokens)), format_duration(s.seconds));
  if (s.validation)
    fmt::print("  validation perplexity  {:.3f}  (loss {:.4f} a token; {})\n",
               s.validation->result.perplexity, s.validation->result.loss,
               inference::extent_in_words(s.validation->result));
  for (const experts::RoutingMode mode :
       {experts::RoutingMode::kGreedy, experts::RoutingMode::kPriced}) {
    if (const inference::Evaluation* routed = evaluation_of(s, mode)) {
      double busiest = 0;
      for (const inference::ExpertUse& use : routed->experts)
        busiest = std::max(busiest, use.busiest_share());
      fmt::print("    {:<20} {:.3f}  busiest expert {:.2f} x its share\n",
                 fmt::format("{} routing", experts::routing_name(mode)), routed->perplexity,
                 busiest);
    }
  }
  if (s.floor_per_token) {
    fmt::print(
        "  entropy floor          {:.3f}  ({:.4f} nats a token, {:.4f} bits a byte): no model can "
        "do better\n",
        std::exp(*s.floor_per_token), *s.floor_per_token,
        s.floor_per_byte.value_or(0) / std::log(2.0));
  }
  if (s.skipped > 0) fmt::print("  skipped steps          {}\n", s.skipped);
  if (s.peak_memory)
    fmt::print("  peak memory            {}\n  predicted memory       {}\n",
               format_bytes(*s.peak_memory), format_bytes(s.predicted_memory));
  fmt::print("  run directory          {}\n  newest checkpoint      {}\n", s.run.string(),
             s.checkpoint.string());
  if (!page.empty()) fmt::print("  report                 {}\n", page.string());
  if (s.validation && !s.validation->result.experts.empty()) {
    const std::filesystem::path tokenizer = loading::tokenizer_folder_of(s.run);
    fmt::print(
        "\nWhat the experts do\n{}\n",
        expert_table(
            s.validation->result, s.layers,
            tokenizer.empty() ? nullptr : tokenizer::load_tokenizer(tokenizer.string()).get()));
  }
  fmt::print("Next:\n");
  if (!s.finished) {
    fmt::print("  ballast train --run {} --resume auto{}\n", s.run.string(),
               s.workers > 1 ? fmt::format(" --workers {}", s.workers) : "");
  }
  if (page.empty()) fmt::print("  ballast report {}\n", s.run.string());
  fmt::print("  ballast generate {0}\n  ballast eval {0}\n  tensorboard --logdir {0}/tensorboard\n",
             s.run.string());
}

int run(const Options& options) {
  training::TrainRequest request = to_request(options);
  if (options.print_config) {
    fmt::print("{}", config::to_toml(training::resolve_config(request)));
    return 0;
  }
  // libtorch's profiler takes a machine without a GPU for an error.
  if (options.profile > 0) ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  if (request.run.empty()) request.run = unused_run_directory(options.config);
  if (must_launch(options.workers)) {
    // What is wrong with it is said once, before workers start. A run that goes on has its own.
    if (!record::RunDirectory::is_run(request.run)) training::resolve_config(request);
    const RunWatcher watcher(options.watch, request.run);
    const int code =
        launch_workers(options.workers, {"--run", request.run.string()}, {"--resume", "auto"});
    if (code == 0) watcher.show_end();
    return code;
  }
  std::optional<RunWatcher> watcher;
  if (comm::own_worker_number() == 0) watcher.emplace(options.watch, request.run);
  const int code = run_as_worker(options.workers, [&](comm::World& world) {
    comm::Communicator& workers = world.everyone();
    const comm::Fact given[] = {{"--run", options.run}};
    comm::check_agreement(workers, given, {"start"});
    request.run = comm::gather_texts(workers, request.run.string(), {"run directory"}).front();
    const training::TrainSummary summary = training::train(request, world);
    if (workers.rank() != 0) return 0;
    const std::filesystem::path page = options.report ? page_of(summary) : "";
    options.json ? print_json(summary, page) : print_summary(summary, page);
    return 0;
  });
  if (code == 0 && watcher) watcher->show_end();
  return code;
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, "train", "Train a language model", kExamples);
  add_config_options(*command, options->config, "TOML file with any of the knobs below");
  add_path(*command, "--run", options->run, "DIR", "run directory; default: a new one under runs/");
  command->add_option("--data", options->data, "short for --data.train")
      ->type_name("PATH[:WEIGHT]")
      ->delimiter(',');
  command
      ->add_option("--resume", options->resume,
                   "auto: go on from the run's newest valid checkpoint, or start it; never: the "
                   "run must be new")
      ->check(CLI::IsMember({"auto", "never"}))
      ->capture_default_str();
  command->add_flag("--allow-other-data", options->allow_other_data,
                    "with --resume auto: go on, though the data or the tokenizer are not those "
                    "that the checkpoint was trained on");
  command
      ->add_option(
          "--init-from", options->initial_weights,
          "start a new run from this run, checkpoint, export or Hugging Face folder: its shape, "
          "but for what is said differently, and its weights; experts, routers and feed-forwards "
          "that it lacks start anew, layers between blocks as the identity")
      ->type_name("MODEL");
  command
      ->add_option("--upcycle", options->upcycle,
                   "with --init-from and experts.placement replace: copy makes the experts of "
                   "copies of the feed-forwards that they stand for")
      ->check(CLI::IsMember({"none", "copy"}))
      ->capture_default_str();
  command
      ->add_option("--upcycle-noise", options->upcycle_noise,
                   "deviation of the noise on each copy, as a part of the matrix's own")
      ->check(from_to(0, 10))
      ->capture_default_str();
  add_worker_options(*command, options->workers);
  add_watch_option(*command, options->watch);
  command->add_option("--max-time", options->max_time, "short for --training.max_time")
      ->type_name("TIME");
  command->add_flag(
      "--report", options->report,
      "at the end, also when stopped before, write a page with figures, as `ballast report` does");
  add_number(*command, "--profile", options->profile,
             "write a trace of N steps, after three others, to profile.json in the run "
             "directory, for ui.perfetto.dev or chrome://tracing (docs/profiling.md)");
  command->add_flag("--print-config", options->print_config,
                    "print the resolved configuration as TOML and stop");
  add_json_flag(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
