// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "ballast/comm/agreement.h"
#include "ballast/config/system_words.h"
#include "ballast/inference/audit.h"
#include "ballast/inference/evaluate.h"
#include "ballast/inference/validation_record.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "ballast/system/stop_signal.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/complaint.h"
#include "cli/eval_data.h"
#include "cli/eval_report.h"
#include "cli/eval_tasks.h"
#include "cli/model_options.h"
#include "cli/workers.h"

namespace ballast::cli {
namespace {

using experts::RoutingMode;

constexpr int kAuditFailed = 3;  // the exit code

constexpr const char* kExamples = R"(
Examples
  On the run's own validation data:
    ballast eval runs/mine
  On any text, each token predicted with at least half a context before it:
    ballast eval runs/mine --data book.txt --stride 128
  On prepared data, for another program:
    ballast eval runs/mine --data data/other --split valid --json
  With the average of weights that the run kept (optimizer.average):
    ballast eval runs/mine --average
  A BASE model's ways of routing side by side, and what each expert got:
    ballast eval runs/mine --routing all --experts
  Whether the model looks ahead, which it must not:
    ballast eval runs/mine --audit
  The losses by domain and what the experts got, as a run's validation.json, for its report:
    ballast eval runs/mine --out runs/mine/validation.json
  Standard tasks, with the numbers that lm-eval reports:
    ballast eval runs/mine --wikitext wiki.test.txt --last-word lambada.jsonl --choice arc.jsonl
  By four workers, which share the experts and the windows:
    ballast eval runs/mine --workers 4
    mpirun -n 4 ballast eval runs/mine
  By four workers of which each two hold one model together:
    ballast eval runs/mine --workers 4 --model-parallel 2

Routing (default: the run's experts.test_routing). Sparsely Gated and Switch layers only know
greedy.
  greedy     each token goes to its best expert
  priced     to its best expert less the prices that balanced training has settled on
  balanced   as in training: every expert gets its share of a batch. The tokens of a batch compete,
             so a token's expert depends on later tokens: the perplexity is not that of a language
             model. It also depends on --batch and --model-parallel, since each worker balances the
             tokens it has
  all        the three side by side

Standard tasks, as lm-eval (the Language Model Evaluation Harness) defines them. A file's name is
  the task's; files may be .gz or .zst.
  --words      text, or .jsonl with "text": perplexity over all documents, each from end-of-text
               (or the tokenizer's begin token) on, per word (white space separates;
               word_perplexity) and per byte
  --wikitext   a file of WikiText: the same by its pages, which the model reads with spaces as
               people write them; words and bytes are those of the file
  --last-word  .jsonl with "text": what follows its last space is predicted from all before it
               (perplexity, acc: the likeliest tokens are that word), as of LAMBADA
  --choice     .jsonl with "query", "choices" (texts) and "gold" (the number of the right one,
               from 0): the likeliest continuation "query choice" is taken (acc), or the likeliest
               by its characters (acc_norm)

The audit (--audit) runs up to 64 windows, spread over the data, with four cuts each: once as they
  are, and once with all tokens after the cut replaced by others. The tokens before the cut must
  keep their experts, unless two experts tie within rounding. Their logits must stay the same within
  16 sqrt(2 layers) (u + sqrt(width) v) of the largest logit, where u is the precision's unit
  roundoff and v that of its sums. In doubt, --precision fp64 tells rounding from a real change.
  Exit code 3: the model looks ahead, as it does with balanced routing.

JSON keys (--json): model, step, data, loss (nats a token), perplexity, bits_per_byte (null where
  the text's size is unknown), tokens, stride, floor_per_token (nats; null where the law is
  unknown), domains (a list of {name, tokens, loss}; empty where they are not known), routing (of
  the keys before; null for a dense model), routings, a list of {routing, loss, perplexity,
  bits_per_byte, domains, layers: [{layer (the last block before it, or the one whose feed-forward
  it stands for), busiest_share (1: balance), experts_in_use, dead_experts, domain_information_bits
  (null: no two domains with 2,000 tokens are known), loads; for Sparsely Gated layers these are of
  first experts, and there is second_experts: {busiest_share, experts_in_use, loads}}]}.
  --experts adds to each layer token_information_bits, previous_information_bits and experts:
  [{expert, load, domains (shares), top_tokens: [{token, text, count, lift}], previous_tokens (those
  that stood before its tokens, the same)}].
  Of a domain with less than 2,000 tokens nothing is said: its loss and its shares are null.
  With --audit: model, step, data, passed, audits: [{routing, passed, windows, cuts, routes, ties,
  changed_routes, logits (positions), changed_logits, left_out, logit_difference, logit_bound,
  score_bound (shares of the largest), first_leak}].
  With standard tasks: model, step, results: {TASK: {alias, "METRIC,none", "METRIC_stderr,none"
  ("N/A" where there is none)}}, n-samples: {TASK: {original, effective}}.
)";

struct Options {
  ModelOptions model;
  std::vector<std::string> data;
  std::string split = "valid", routing, out;
  int64_t stride = 0, batch = 0;  // 0: the default
  bool experts = false, audit = false, json = false;
  TaskFiles tasks;
  WorkerOptions workers;
};

// What must be the same on all workers beside the model.
void check_alike(const Options& options, comm::Communicator& workers) {
  const comm::Fact facts[] = {
      {"--data", fmt::format("{}", fmt::join(options.data, ","))},
      {"--split", options.split},
      {"--routing", options.routing},
      {"--stride", fmt::format("{}", options.stride)},
      {"--batch", fmt::format("{}", options.batch)},
      {"--experts", options.experts ? "given" : "not given"},
      {"--audit", options.audit ? "given" : "not given"},
      {"--out", options.out},
      {"--average", options.model.average ? "given" : "not given"},
      {"--words", fmt::format("{}", fmt::join(options.tasks.words, ","))},
      {"--wikitext", fmt::format("{}", fmt::join(options.tasks.wikitext, ","))},
      {"--last-word", fmt::format("{}", fmt::join(options.tasks.last_words, ","))},
      {"--choice", fmt::format("{}", fmt::join(options.tasks.choices, ","))},
      {"--model-parallel", fmt::format("{}", options.model.model_parallel)}};
  comm::check_agreement(workers, facts, {"eval"});
}

int64_t batch_of(const Options& options, const loading::LoadedModel& loaded) {
  return options.batch > 0 ? options.batch : inference::evaluation_batch(loaded.config);
}

std::vector<RoutingMode> chosen_routings(const Options& options,
                                         const loading::LoadedModel& loaded) {
  const bool is_dense = loaded.model->expert_layers().empty();
  if (options.experts && is_dense)
    fail("--experts: {} is a dense model, without experts", loaded.path.string());
  if (options.routing == "all" && !is_dense && !loaded.config.experts.traits().balanced) {
    log_info("--routing all: a {} routes greedily, there is no other way",
             config::layer_in_words(loaded.config.experts));
    return {RoutingMode::kGreedy};
  }
  // A run's validation.json has all of them, too.
  const bool wants_all =
      options.routing == "all" || (options.routing.empty() && !options.out.empty());
  if (wants_all && !is_dense && loaded.config.experts.traits().balanced)
    return {RoutingMode::kGreedy, RoutingMode::kPriced, RoutingMode::kBalanced};
  return {choose_routing(loaded, options.routing)};
}

// A look at the windows, with a progress bar on worker 0, until all are done or someone stops it.
class Watch {
 public:
  Watch(const char* title, uint64_t windows, comm::Communicator& workers) {
    if (workers.rank() == 0) progress_.emplace(title, windows, "windows");
  }
  std::function<bool(uint64_t)> advance() {
    return [this](uint64_t count) {
      if (progress_) progress_->advance(count);
      return !signal_.requested();
    };
  }

 private:
  StopSignal signal_;
  std::optional<Progress> progress_;
};

// As a program that a signal ended.
int stopped(const comm::Communicator& workers) {
  constexpr int kInterrupted = 130;
  if (workers.rank() == 0) complain("stopped before the end: nothing to report", kInterrupted);
  return kInterrupted;
}

struct Job {
  const Options& options;
  const loading::LoadedModel& loaded;
  const batches::EvalWindows& windows;
  std::string data;
  std::vector<RoutingMode> routings;
};

void write_record(const Job& job, const EvalReport& report) {
  inference::EvaluatedModel model{.config = job.loaded.config,
                                  .step = static_cast<int64_t>(job.loaded.step),
                                  .windows = job.windows,
                                  .tokenizer = job.loaded.tokenizer.get(),
                                  .routings = {}};
  for (const RoutingResult& result : report.results)
    model.routings.push_back({result.routing, result.evaluation});
  record::write_validation(job.options.out, inference::last_validation(model));
}

int evaluate_all(const Job& job, comm::Communicator& workers, int64_t stride) {
  EvalReport report{.model = job.loaded,
                    .data = job.data,
                    .stride = stride,
                    .floor = job.windows.source().floor_per_token(),
                    .results = {},
                    .main = 0,
                    .with_experts = job.options.experts};
  {
    Watch watch("eval", job.windows.size() * job.routings.size(), workers);
    for (const RoutingMode routing : job.routings) {
      const inference::EvaluationOptions options{
          .batch = batch_of(job.options, job.loaded),
          .routing = routing,
          .previous_tokens = job.options.experts ||
                             (!job.options.out.empty() && routing != RoutingMode::kBalanced)};
      report.results.push_back(
          {routing, inference::evaluate(*job.loaded.model, job.loaded.place, job.windows, options,
                                        watch.advance())});
      if (report.results.back().evaluation.tokens < job.windows.predictions())
        return stopped(workers);
    }
  }
  const RoutingMode usual = choose_routing(job.loaded, "");
  const auto main = std::ranges::find(job.routings, usual);
  if (main != job.routings.end()) report.main = static_cast<size_t>(main - job.routings.begin());
  if (workers.rank() == 0) fmt::print("{}", job.options.json ? to_json(report) : to_text(report));
  if (workers.rank() == 0 && !job.options.out.empty()) write_record(job, report);
  return 0;
}

int audit_all(const Job& job, comm::Communicator& workers) {
  AuditSummary summary{.model = job.loaded, .data = job.data, .audits = {}};
  {
    inference::AuditOptions options{.batch = batch_of(job.options, job.loaded)};
    const uint64_t windows = std::min(options.max_windows, job.windows.size());
    Watch watch("audit", windows * job.routings.size(), workers);
    for (const RoutingMode routing : job.routings) {
      options.routing = routing;
      summary.audits.push_back(
          {routing, inference::audit_causality(*job.loaded.model, job.loaded.place, job.windows,
                                               options, watch.advance())});
      if (static_cast<uint64_t>(summary.audits.back().audit.windows) < windows)
        return stopped(workers);
    }
  }
  if (workers.rank() == 0) fmt::print("{}", job.options.json ? to_json(summary) : to_text(summary));
  return summary.passed() ? 0 : kAuditFailed;
}

int run_standard_tasks(const Options& options, const loading::LoadedModel& loaded,
                       comm::Communicator& workers) {
  inference::ScoreOptions scoring{.batch = batch_of(options, loaded)};
  comm::all_or_none(workers,
                    [&] {
                      if (options.routing == "all" || options.routing == "balanced")
                        fail("--routing {}: standard tasks are for greedy or priced routing",
                             options.routing);
                      scoring.routing = choose_routing(loaded, options.routing);
                    },
                    {"routing"});
  std::vector<NamedTask> tasks;
  comm::all_or_none(workers, [&] { tasks = read_tasks(options.tasks, loaded); }, {"tasks"});
  std::vector<NamedResult> results;
  for (const NamedTask& one : tasks) {
    Watch watch(one.name.c_str(), one.task.questions.size(), workers);
    const auto scores =
        inference::score(*loaded.model, loaded.place, one.task.questions, scoring, watch.advance());
    if (scores.size() != one.task.questions.size()) return stopped(workers);
    results.push_back({one.name, one.task.sum_up(scores)});
  }
  if (workers.rank() == 0)
    fmt::print("{}", options.json ? tasks_to_json(results, loaded) : tasks_to_text(results));
  return 0;
}

int work(const Options& options, comm::World& world) {
  comm::Communicator& workers = world.everyone();
  check_alike(options, workers);
  const auto loaded = load(options.model, world);
  if (!options.tasks.empty()) return run_standard_tasks(options, *loaded, workers);
  std::vector<RoutingMode> routings;
  comm::all_or_none(workers, [&] { routings = chosen_routings(options, *loaded); }, {"routing"});
  const EvalData data({options.model.path, options.data, options.split}, *loaded, workers);
  const int64_t context = loaded->config.model.context;
  const int64_t stride = options.stride > 0 ? options.stride : context;
  const auto check_out = [&] {
    const std::filesystem::path folder = std::filesystem::path(options.out).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder))
      fail("--out {}: there is no folder {}", options.out, folder.string());
    if (!options.out.empty() && std::filesystem::exists(options.out) &&
        !record::is_validation_file(options.out))
      fail("--out {}: what is there is no validation.json, and is not replaced", options.out);
  };
  comm::all_or_none(workers, check_out, {"--out"});
  std::optional<batches::EvalWindows> windows;
  comm::all_or_none(workers, [&] { windows.emplace(data.source(), context, stride); }, {"windows"});
  const Job job{.options = options,
                .loaded = *loaded,
                .windows = *windows,
                .data = options.data.empty() ? data.source()->info().name
                                             : fmt::format("{}", fmt::join(options.data, ",")),
                .routings = routings};
  return options.audit ? audit_all(job, workers) : evaluate_all(job, workers, stride);
}

int run(const Options& options) {
  if (!must_launch(options.workers))
    return run_as_worker(options.workers, [&](comm::World& world) { return work(options, world); });
  if (std::ranges::find(options.data, "-") != options.data.end())
    fail("--data -: standard input does not reach workers that --workers starts; give a file");
  return launch_workers(options.workers, {}, {});
}

}  // namespace

void add_eval(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "eval", "Measure a model's loss and perplexity on text or tokens", kExamples);
  add_model_options(*command, options->model);
  CLI::Option* data =
      add_path(*command, "--data", options->data, "PATH",
               "text files, folders, - (stdin), prepared data or token files; default: the "
               "run's validation data");
  command->add_option("--split", options->split, "which split of prepared data [valid]")
      ->check(CLI::IsMember({"train", "valid", "test"}));
  CLI::Option* stride = add_number(
      *command, "--stride", options->stride,
      "new tokens a window predicts; smaller: more context, slower; default: the context");
  add_number(*command, "--batch", options->batch,
             "windows at a time, on each worker (or model); default: as the run was "
             "validated, those of a micro-step up to 8,192 tokens");
  command
      ->add_option("--routing", options->routing,
                   "how tokens of a BASE model find their experts, see below; balanced sees the "
                   "future, so that its perplexity is not that of a language model")
      ->check(CLI::IsMember({"greedy", "priced", "balanced", "all"}));
  CLI::Option* experts =
      command->add_flag("--experts", options->experts,
                        "also what each expert got: load, domains, most frequent tokens and "
                        "those before them");
  CLI::Option* out =
      add_path(*command, "--out", options->out, "FILE",
               "also write the file that a run has as validation.json, for reports; of a "
               "BASE model with all ways of routing, unless --routing names one");
  CLI::Option* audit =
      command
          ->add_flag("--audit", options->audit,
                     "instead of the loss, whether the model looks ahead (exit code 3), see below")
          ->excludes(experts, out);
  for (const auto& [name, files, help] :
       {std::tuple{"--words", &options->tasks.words, "word perplexity of these texts, see below"},
        std::tuple{"--wikitext", &options->tasks.wikitext,
                   "word perplexity of WikiText as lm-eval has it, see below"},
        std::tuple{"--last-word", &options->tasks.last_words,
                   "how well the last words of these texts are predicted, see below"},
        std::tuple{"--choice", &options->tasks.choices, "multiple choice, see below"}}) {
    command->add_option(name, *files, help)
        ->type_name("FILE ...")
        ->excludes(data, stride, experts, out, audit);
  }
  add_json_flag(*command, options->json);
  add_worker_options(*command, options->workers);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
