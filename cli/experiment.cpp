// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "ballast/studio/experiments/comparison.h"
#include "ballast/studio/experiments/stages.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "cli/at_least.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/complaint.h"
#include "cli/experiment_children.h"
#include "cli/experiment_run.h"
#include "cli/experiment_setup.h"
#include "cli/experiment_table.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStopped = 130;  // as a shell reports Ctrl-C

constexpr const char* kExamples = R"(
Every system of a comparison trains for the same time on the same data in the same order:
  dense        BASE x1, data parallel, model parallel x2 and x4, beside 8, 32 and 128 experts
  sparse       BASE x3; in place of feed-forwards BASE, BASE with its paper's router, Sparsely
               Gated MoE, Switch
  expert-size  BASE x1 with small, standard and large experts
  placement    BASE Top, x1, x2, x3, x5
  routing      BASE, BASE with its paper's router, Sparsely Gated MoE, Switch: one layer of deep
               experts each
  overview     dense, dense of equal FLOPs, BASE x1, x2, x3, and what sparse has in place of
               feed-forwards
  frames       dense of equal FLOPs, data parallel, and in place of feed-forwards Switch, Sparsely
               Gated MoE, BASE with its paper's router, without and with look-ahead, two experts a
               token, a shared expert
  all          all of these, each model once
First steps of each system are measured, alone: that fixes how many steps make the budget. Then
learning rates are tried, each for a part of the steps. Then each system trains with its best rate.
Of several budgets each is an experiment of its own; those after the first take its step times and
learning rates. docs/experiments.md tells more. After Ctrl-C or a kill the same command goes on. A
system that fails does not hold up the others; the same command tries it again.

Examples
  ballast experiment overview --experts 8 --budget 2m           on two cores: half an hour
  ballast experiment overview --experts 8 --budget 2m --dry-run what it would train, and how long
  ballast experiment dense --data data/mine --budget 1h --seeds 3
  ballast experiment frames --experts 32 --budget 15s,2m --model.width 128 --model.layers 8
  ballast experiment sparse --model.width 512 --model.layers 8 --model.heads 8 --sublayers 6
  ballast experiment routing --config configs/paper_base_44b.toml --scale laptop --rates 1
  ballast experiment overview --systems dense,base-x1,switch --experts 8,32 --out experiments/mine

JSON keys (--json): folder, finished, failed (ids), report (null: not written), equal_tokens (those
  that all have seen), systems [{id, title, experts, words, parameters, active, flops_per_token,
  learning_rate, steps, tokens, tokens_per_second (measured alone), step_seconds (by which the
  budget goes), early_step_seconds (right after the start), seconds (trained; null with --at-once),
  perplexity (for BASE the better of greedy and priced routing), routing (which of them; null: there
  is one way), greedy_perplexity (also that of dense models), priced_perplexity,
  perplexity_at_equal_tokens (of the first seed), routing_at_equal_tokens, busiest (x its share,
  greedy), seeds [{seed, greedy_perplexity, priced_perplexity, busiest, seconds}], whose means the
  other keys are}], panels [{title, systems (ids), plan {workers, device, network, tokens_per_second
  {ID: what the cost model expects of that cluster}}}]; null where there is none. With --dry-run:
  panels, seconds, and what experiment.json would hold of systems [{id, title, experts, parameters,
  active, flops_per_token}]. Of several budgets: experiments, a list of these.
)";

struct Options {
  ExperimentRequest request;
  std::vector<std::string> budgets = {"10m"};
  bool dry_run = false, json = false;

  // One for each budget.
  std::vector<ExperimentRequest> requests() const {
    std::vector<ExperimentRequest> each(budgets.size(), request);
    for (size_t i = 0; i < each.size(); ++i) {
      each[i].budget = budgets[i];
      if (each.size() > 1 && !request.out.empty()) each[i].out = request.out / budgets[i];
    }
    return each;
  }
};

// What one experiment came to.
struct Finished {
  Json json;
  bool was_stopped = false;
  std::vector<std::string> failed;
};

// Of one budget the object itself.
void print_json(Json experiments) {
  fmt::print("{}\n", (experiments.size() == 1 ? experiments[0]
                                              : Json{{"experiments", std::move(experiments)}})
                         .dump(2));
}

int show_plans(const Options& options) {
  Json all = Json::array();
  fs::path first;
  for (const ExperimentRequest& request : options.requests()) {
    record::Experiment planned = set_up(request, Preparing::kNothing).experiment;
    if (!first.empty()) planned.rates_from = first.string();
    if (first.empty()) first = experiment_folder(request);
    all.push_back(planned_json(planned));
    if (!options.json) fmt::print("{}", planned_table(planned));
  }
  if (options.json) print_json(std::move(all));
  return 0;
}

// Goes on with the experiment that is there, if it is the one that is asked for.
void go_on_with(record::Experiment& experiment, const fs::path& file) {
  record::Experiment stored = record::load_experiment(file);
  const std::vector<std::string> changes = record::differences(stored, experiment);
  if (!changes.empty()) {
    fail(
        "{} holds an experiment that was started otherwise: {}. Choose another --out for it, or "
        "leave these as they were",
        file.parent_path().string(), fmt::join(changes, "; "));
  }
  stored.seeds = experiment.seeds;
  stored.panels = experiment.panels;  // the same systems, planned by this program
  stored.at_once = std::max(stored.at_once, experiment.at_once);
  experiment = std::move(stored);
}

void check_folder(const fs::path& folder) {
  if (fs::exists(folder) && !fs::is_directory(folder))
    fail("{} is a file, not the folder of an experiment: choose another --out", folder.string());
  if (!fs::exists(folder / record::kExperimentFile) && fs::exists(folder / "run.json"))
    fail("{} is the folder of a run: choose another --out", folder.string());
}

// The page of `ballast report`; empty: it could not be written, which is told.
fs::path write_page(const fs::path& folder) {
  const fs::path log = folder / "logs" / "report.log";
  int code = 0;
  ChildWatch watch;
  watch.started = [](size_t) {};
  watch.has_ended = [&](size_t, int its) { code = its; };
  run_children({{{"report", folder.string()}, log}}, watch, StopSignal());
  if (code == 0) return folder / "report" / "index.html";
  log_warning("no report was written; the last lines of {}:\n{}", log.string(), last_lines(log, 5));
  return {};
}

// Its table for people; what it is as JSON.
Json show_end(const Options& options, const ExperimentEnd& end,
              const record::Experiment& experiment, const fs::path& folder) {
  const Json results = results_json(experiment, folder);
  const fs::path page =
      results["systems"].empty() || end.was_stopped ? fs::path() : write_page(folder);
  if (!options.json) {
    if (!results["systems"].empty()) fmt::print("\n{}", results_table(results));
    fmt::print("\nfolder  {}\n", folder.string());
    if (!page.empty()) fmt::print("report  {}\n", page.string());
  }
  Json out = {{"folder", folder.string()},
              {"finished", !end.was_stopped && end.failed.empty()},
              {"failed", end.failed},
              {"report", page.empty() ? Json() : Json(page.string())}};
  out.update(results);
  return out;
}

// `first`: the folder of the experiment whose step times and learning rates it takes; empty: none.
Finished run_one(const Options& options, const ExperimentRequest& request, const fs::path& first) {
  const fs::path folder = experiment_folder(request);
  make_folder(folder);
  const FileLock lock(folder / "lock", "experiment folder " + folder.string());
  ExperimentSetup setup = set_up(request, Preparing::kData);
  const fs::path file = folder / record::kExperimentFile;
  if (fs::exists(file)) {
    go_on_with(setup.experiment, file);
  } else if (!first.empty()) {
    experiments::take_rates(
        setup.experiment, record::load_experiment(first / record::kExperimentFile), first.string());
  }
  record::save_experiment(file, setup.experiment);
  log_info("{}: {} systems, {} of training each; {}", setup.experiment.title,
           setup.experiment.systems.size(), format_duration(setup.experiment.budget_seconds),
           folder.string());
  if (!setup.experiment.rates_from.empty())
    log_info("step times and learning rates are those of {}", setup.experiment.rates_from);
  const ExperimentEnd end = run_experiment(setup.experiment, setup.place);
  return {show_end(options, end, setup.experiment, folder), end.was_stopped, end.failed};
}

int run(const Options& options) {
  if (options.request.rates > 0 && options.request.rates % 2 == 0)
    fail("--rates: want an odd number; the middle one is the default learning rate");
  if (options.dry_run) return show_plans(options);
  const std::vector<ExperimentRequest> requests = options.requests();
  for (const ExperimentRequest& request : requests) {
    check_folder(experiment_folder(request));
    set_up(request, Preparing::kNothing);  // what is wrong is told before anything is made
  }
  Json all = Json::array();
  std::set<std::string> failed;
  bool was_stopped = false;
  for (size_t i = 0; i < requests.size() && !was_stopped; ++i) {
    Finished one =
        run_one(options, requests[i], i == 0 ? fs::path() : experiment_folder(requests[0]));
    all.push_back(std::move(one.json));
    failed.insert(one.failed.begin(), one.failed.end());
    was_stopped = one.was_stopped;
  }
  if (options.json) print_json(std::move(all));
  if (was_stopped) {
    log_info("stopped; the same command goes on");
    return kStopped;
  }
  if (failed.empty()) return 0;
  return complain(
      fmt::format("not trained: {}; the same command tries again", fmt::join(failed, ", ")),
      kOurFault);
}

void add_numbers(CLI::App& command, ExperimentRequest& request) {
  add_number(command, "--workers", request.workers,
             "workers that train each system, on this machine")
      ->capture_default_str();
  add_number(command, "--seeds", request.seeds,
             "seeds of the three best systems; the others have one")
      ->capture_default_str();
  add_number(command, "--at-once", request.at_once,
             "runs that train side by side, after each was measured alone")
      ->capture_default_str();
  add_number(command, "--rates", request.rates,
             "learning rates each sweep starts with, odd; 1: no sweep; default: 3, with "
             "--optimizer.learning_rate 1, else that is the middle one");
  add_number(command, "--sublayers", request.sublayers,
             "of all BASE layers of a system together; default: 3, of placement 6, with a "
             "config file its own");
  command
      .add_option(
          "--max-epochs", request.max_epochs,
          "how often a system may see its data at most; the budget of all is shortened to that")
      ->check(above_zero())
      ->capture_default_str()
      ->type_name("X");
}

}  // namespace

void add_experiment(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  ExperimentRequest& request = options->request;
  CLI::App* command =
      add_command(app, "experiment", "Compare systems as the paper does, at equal time", kExamples);
  command
      ->add_option("NAME", request.name,
                   "dense, sparse, expert-size, placement, routing, overview, frames or all")
      ->required();
  command
      ->add_option("--budget", options->budgets,
                   "training time of each system; of several each is an experiment")
      ->capture_default_str()
      ->type_name("TIME,...")
      ->delimiter(',');
  command->add_option("--data", request.data, "short for --data.train")
      ->type_name("PATH[:WEIGHT]")
      ->delimiter(',');
  add_path(*command, "--out", request.out, "DIR",
           "the experiment's folder; default: experiments/NAME-BUDGET; of several budgets "
           "DIR/BUDGET");
  add_number(*command, "--experts", request.experts, "numbers of experts, a panel for each", 2)
      ->type_name("E,...")
      ->delimiter(',');
  command->add_option("--systems", request.systems, "only these, by id (--dry-run lists them)")
      ->type_name("ID,...")
      ->delimiter(',');
  add_numbers(*command, request);
  command->add_flag("--dry-run", options->dry_run, "print what would be trained, and stop");
  add_json_flag(*command, options->json);
  add_config_options(*command, request.config, "TOML file with knobs of the shared model");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
