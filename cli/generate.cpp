// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ballast/comm/agreement.h"
#include "ballast/loading/framing.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/stop_signal.h"
#include "ballast/system/utf8.h"
#include "cli/at_least.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/workers.h"

namespace ballast::cli {
namespace {

constexpr const char* kExamples = R"(
Examples
  ballast generate runs/mine
  ballast generate runs/mine --prompt "Weather report" --temperature 0.8 --max-tokens 400
  Ten different continuations of one prompt, or one of each line of a file:
    ballast generate runs/mine --prompt "Once" --samples 10
    ballast generate runs/mine --prompts prompts.txt --json

JSON keys (--json): model, step, seed, seconds (that writing took, once the model was there),
  completions, a list of {prompt, text, tokens, ids}; text and ids are of the continuation alone.
  Bytes that are not UTF-8 are replaced in text.
Text is printed as the model wrote it, byte by byte; on a terminal control characters are shown as
  \x1b.
)";

struct Options {
  ModelOptions model;
  std::vector<std::string> prompts;
  std::string prompt_file;
  int64_t samples = 1;
  inference::GenerationOptions generation;
  std::string routing;
  bool endless = false, json = false;
  WorkerOptions workers;
};

std::vector<std::string> all_prompts(const Options& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.prompt_file.empty()) {
    std::istringstream lines(read_text(options.prompt_file));
    for (std::string line; std::getline(lines, line);) prompts.push_back(line);
    if (prompts.empty()) fail("{} holds no prompts (one a line)", options.prompt_file);
  }
  if (prompts.empty()) prompts.emplace_back();
  std::vector<std::string> repeated;
  for (const std::string& prompt : prompts)
    repeated.insert(repeated.end(), static_cast<size_t>(options.samples), prompt);
  return repeated;
}

// Every byte as the model wrote it; on a terminal, which some would command, printable().
class TextOutput {
 public:
  explicit TextOutput(const comm::Communicator& workers)
      // mpirun gives its workers a terminal of its own, wherever the text goes.
      : to_terminal_(workers.size() == 1 && ::isatty(STDOUT_FILENO) != 0) {}

  // False when nobody reads any more.
  bool write(std::string_view text) { return put(to_terminal_ ? shown_.add(text) : text); }
  // The end of a text.
  bool finish(std::string_view line_ends) { return put(shown_.rest() + std::string(line_ends)); }

 private:
  static bool put(std::string_view text) {
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
           std::fflush(stdout) == 0;
  }

  bool to_terminal_;
  PrintableStream shown_;
};

void print_all(const Options& options, const loading::LoadedModel& loaded, TextOutput& output,
               const std::vector<std::string>& prompts,
               const std::vector<std::vector<tokenizer::TokenId>>& written, double seconds) {
  nlohmann::ordered_json completions = nlohmann::ordered_json::array();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string text = loaded.tokenizer->decode(written[i]);
    if (options.json) {
      completions.push_back({{"prompt", replace_invalid_utf8(prompts[i])},
                             {"text", replace_invalid_utf8(text)},
                             {"tokens", written[i].size()},
                             {"ids", written[i]}});
    } else {
      output.write(fmt::format("== {} ==\n{}{}", i + 1, prompts[i], text));
      output.finish("\n\n");
    }
  }
  if (options.json) {
    const nlohmann::ordered_json out = {{"model", loaded.path.string()},
                                        {"step", loaded.step},
                                        {"seed", options.generation.seed},
                                        {"seconds", seconds},
                                        {"completions", completions}};
    fmt::print("{}\n", out.dump(2));
  }
}

int work(const Options& options, comm::World& world) {
  comm::Communicator& workers = world.everyone();
  const comm::Fact given[] = {
      {"--average", options.model.average ? "given" : "not given"},
      {"--model-parallel", fmt::format("{}", options.model.model_parallel)}};
  comm::check_agreement(workers, given, {"generate"});
  const auto loaded = load(options.model, world);
  std::vector<std::string> prompts;
  inference::GenerationOptions generation = options.generation;
  comm::all_or_none(workers,
                    [&] {
                      require_tokenizer(*loaded);
                      generation.routing = choose_routing(*loaded, options.routing);
                      prompts = all_prompts(options);
                    },
                    {"prompts"});
  const tokenizer::Tokenizer& tokenizer = *loaded->tokenizer;
  std::vector<std::vector<tokenizer::TokenId>> ids(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) tokenizer.encode(prompts[i], ids[i]);
  generation.start = tokenizer::start_of_text(tokenizer, loading::framing_of(loaded->data));

  const bool prints = workers.rank() == 0;
  const bool stream = prompts.size() == 1 && !options.json && prints;
  const StopSignal signal;
  TextOutput output(workers);
  if (stream) output.write(prompts.front());
  const auto start = std::chrono::steady_clock::now();
  const auto written =
      inference::generate(*loaded->model, loaded->place, tokenizer.end_of_text(), ids, generation,
                          [&](size_t, tokenizer::TokenId token) {
                            if (stream && !output.write(tokenizer.token_bytes(token))) return false;
                            return !signal.requested();
                          });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (stream) output.finish("\n");
  if (prints && !stream) print_all(options, *loaded, output, prompts, written, took.count());
  return 0;
}

int run(const Options& options) {
  if (must_launch(options.workers)) return launch_workers(options.workers, {}, {});
  return run_as_worker(options.workers, [&](comm::World& world) { return work(options, world); });
}

}  // namespace

void add_generate(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  inference::GenerationOptions& g = options->generation;
  CLI::App* command = add_command(app, "generate", "Let a model write", kExamples);
  add_model_options(*command, options->model);
  command
      ->add_option("--prompt", options->prompts,
                   "what to continue; may be given several times; default: a new document")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  add_path(*command, "--prompts", options->prompt_file, "FILE", "a file with one prompt a line");
  add_number(*command, "--samples", options->samples, "continuations of each prompt")
      ->capture_default_str();
  add_number(*command, "--max-tokens", g.max_tokens, "longest continuation", 0)
      ->capture_default_str();
  command
      ->add_option("--temperature", g.sampling.temperature,
                   "0: always the likeliest token; 1: as the model says")
      ->check(from_to(0, 1e6))
      ->capture_default_str();
  add_number(*command, "--top-k", g.sampling.top_k, "choose among the k likeliest; 0: all", 0)
      ->capture_default_str();
  command
      ->add_option("--top-p", g.sampling.top_p,
                   "choose among the likeliest that together have this probability")
      ->check(from_to(0, 1))
      ->capture_default_str();
  command->add_option("--seed", g.seed, "the same seed, the same text")->capture_default_str();
  command
      ->add_option("--routing", options->routing,
                   "how tokens of a BASE model find their experts: the best by score, or less the "
                   "prices of training; default: the run's experts.test_routing")
      ->check(CLI::IsMember({"greedy", "priced"}));
  command->add_flag("--endless", options->endless, "write on after the end of a document");
  add_json_flag(*command, options->json);
  add_worker_options(*command, options->workers);
  command->callback([options, &chosen] {
    options->generation.stop_at_end_of_text = !options->endless;
    chosen = [options] { return run(*options); };
  });
}

}  // namespace ballast::cli
