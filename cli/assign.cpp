// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/assignment/solver.h"
#include "ballast/studio/scores/score_files.h"
#include "ballast/studio/scores/score_kinds.h"
#include "ballast/system/error.h"
#include "ballast/system/number_from.h"
#include "cli/assignment_run.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/place_options.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
Given the scores of every token for every expert, gives each token one expert, so that every expert
gets its share of tokens and the sum of scores is as large as it can be. The result proves itself:
no assignment can exceed the upper bound, and an exact result reaches it.

Scores
  --scores FILE         [tokens, experts]: .npy, .csv or .txt; .safetensors, if it holds several
                        matrices as FILE:NAME
  --kind NAME           generated ones, with --tokens, --experts and --seed:
{kinds}
Shares
  By default every expert gets as many tokens as any other; where tokens / experts is not whole,
  some get one more, whichever is best. --capacities 4,0,9 or a FILE of such numbers: expert e gets
  at most that many; where they just suffice, exactly. --mask FILE (1 or 0 for each token): tokens
  with 0 are padding, which does not count and fills what the others leave.

Solvers
  exact      the optimum, proved; with --gap, on a GPU, at most that far from it
  auction    the BASE paper's, made safe: always within the shares, never proved to be the optimum
  sinkhorn   soft assignment, then rounding: within the shares, short by about as much
  greedy     each token its best expert: the shares are not kept (valid: no)

Time
  Of solving alone, without reading and writing files. The first call on the CPU also gets memory
  from the system, which often takes several times as long as the solving. --repeat 9 solves nine
  times more and tells their median: what a program that keeps its solver waits for.

Examples
  ballast assign --scores scores.npy --out experts.npy
  ballast assign --scores model.safetensors:router.scores --capacities 100,100,80,200 --json
  ballast assign --kind cluster --tokens 16384 --experts 128 --solver auction
  ballast assign --scores monday.npy --prices-out prices.npy
  ballast assign --scores tuesday.npy --start-prices prices.npy
      similar scores have similar prices: a faster start, the same optimum

JSON keys (--json): tokens, experts, solver, device, valid (shares kept, nothing forbidden used),
  primal (sum of the chosen scores), dual (no valid assignment exceeds it, by the solver's prices),
  gap (dual - primal: at most this much is missing; with exact it is 0 up to rounding, which is the
  proof; the others have rough prices, so it may be far above what is missing), blind (what a blind
  spread is worth: each token's scores weighted by the experts' shares), relative_gap (gap over dual
  - blind: 0 is the optimum, 1 a blind spread; null: dual is not above blind), proved_optimal (gap
  is rounding, at most 1e-9 of the sum over tokens of the largest |score|), milliseconds (solving
  alone; see Time), smallest_load, largest_load, replaced_scores, repeats.)";

struct Options {
  std::string scores, kind, solver = "exact", capacities, mask;
  std::string non_finite = "reject", start_prices, prices_out, out;
  config::DeviceChoice device = config::DeviceChoice::kCpu;
  int64_t tokens = 0, experts = 0;
  uint64_t seed = 0, batch = 0;
  size_t threads = 0, repeat = 0;
  double gap = 0;
  bool json = false;
};

// What a problem refers to.
struct Input {
  scores::StoredScores scores;
  std::vector<uint8_t> counted;
  std::vector<double> start_prices;
  assignment::AssignmentProblem problem;
};

scores::StoredScores scores_of(const CLI::App& command, const Options& options) {
  const auto given = [&](const char* name) { return command.count(name) > 0; };
  if (given("--scores") == given("--kind"))
    fail("give either --scores FILE or --kind NAME (with --tokens and --experts)");
  if (given("--scores")) {
    for (const char* name : {"--tokens", "--experts", "--seed", "--batch"})
      if (given(name)) fail("{} is for --kind; the scores here come from a file", name);
    return scores::read_scores(options.scores);
  }
  if (!given("--tokens") || !given("--experts"))
    fail("--kind needs --tokens and --experts: how many of each");
  return scores::store_scores(
      scores::generate_scores({.kind = scores::parse_score_kind(options.kind),
                               .tokens = options.tokens,
                               .experts = options.experts,
                               .seed = options.seed,
                               .batch = options.batch}),
      options.tokens, options.experts);
}

std::vector<int64_t> parse_capacities(const std::string& text) {
  if (text.find_first_not_of("0123456789,- +") != std::string::npos) {
    if (!fs::exists(text))
      fail(
          "--capacities: \"{}\" is not a list of whole numbers, such as 10,10,20, and there is no "
          "such file",
          text);
    return scores::read_whole_numbers(text);
  }
  std::vector<int64_t> capacities;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    const std::string word = text.substr(begin, end == std::string::npos ? end : end - begin);
    const std::string digits = CLI::detail::trim_copy(word);
    const auto capacity = number_from<int64_t>(digits);
    if (!capacity)
      fail(
          "--capacities \"{}\": \"{}\" is not a whole number; want a list such as 10,10,20, or a "
          "file",
          text, word);
    capacities.push_back(*capacity);
  }
  return capacities;
}

std::vector<uint8_t> read_mask(const std::string& path, int64_t tokens) {
  std::vector<uint8_t> counted;
  for (const int64_t value : scores::read_whole_numbers(path)) {
    if (value != 0 && value != 1)
      fail("{}: token {} has {}; want 1 (counts) or 0 (padding)", path, counted.size(), value);
    counted.push_back(static_cast<uint8_t>(value));
  }
  if (std::ssize(counted) != tokens)
    fail("{} holds {} numbers, and there are {} tokens", path, counted.size(), tokens);
  return counted;
}

assignment::NonFinite parse_non_finite(const std::string& name) {
  if (name == "reject") return assignment::NonFinite::kReject;
  return name == "lowest" ? assignment::NonFinite::kLowest : assignment::NonFinite::kForbid;
}

std::unique_ptr<Input> read_input(const CLI::App& command, const Options& options) {
  auto input = std::make_unique<Input>();
  input->scores = scores_of(command, options);
  const assignment::ScoreMatrix& matrix = input->scores.matrix;
  assignment::AssignmentProblem& problem = input->problem;
  problem.scores = matrix;
  problem.non_finite = parse_non_finite(options.non_finite);
  assignment::check_shape(problem);
  if (command.count("--capacities") > 0) {
    const std::vector<int64_t> capacities = parse_capacities(options.capacities);
    if (std::ssize(capacities) != matrix.experts)
      fail("--capacities names {} experts, and the scores have {}", capacities.size(),
           matrix.experts);
    problem.bounds = assignment::at_most(capacities, matrix.tokens);
  }
  if (!options.mask.empty()) {
    input->counted = read_mask(options.mask, matrix.tokens);
    problem.counted = input->counted;
  }
  if (!options.start_prices.empty()) {
    input->start_prices = scores::read_numbers(options.start_prices);
    if (std::ssize(input->start_prices) != matrix.experts)
      fail("{} holds {} prices, and the scores have {} experts", options.start_prices,
           input->start_prices.size(), matrix.experts);
  }
  return input;
}

struct Outcome {
  assignment::Assignment assignment;
  double milliseconds = 0;
  double magnitude = 0;  // of the scores

  double relative_gap() const {
    const assignment::Certificate& found = assignment.certificate;
    return assignment::relative_gap(found.primal, found.dual, found.blind);
  }
  int32_t smallest_load = 0, largest_load = 0;
};

// Reads the scores before they are solved, so that one that is refused is named with its file.
double checked_magnitude(const Options& options, const assignment::AssignmentProblem& problem) {
  try {
    return magnitude_of(problem);
  } catch (const UserError& error) {
    fail("{}: {}{}", options.scores, error.what(),
         problem.non_finite == assignment::NonFinite::kLowest
             ? ""
             : "; --non-finite lowest takes NaN and inf as the lowest score, --non-finite forbid "
               "takes -inf as a forbidden pair");
  }
}

Outcome solve(const Options& options, const Input& input) {
  Outcome outcome;
  outcome.magnitude = checked_magnitude(options, input.problem);
  const auto run = make_assignment_run({.solver = assignment::parse_solver_kind(options.solver),
                                        .device = options.device,
                                        .threads = options.threads,
                                        .gap = options.gap});
  run->load({&input.problem, 1});
  std::vector<assignment::Assignment> results;
  outcome.milliseconds = run->solve(input.start_prices, results);
  std::vector<double> again;
  for (size_t i = 0; i < options.repeat; ++i)
    again.push_back(run->solve(input.start_prices, results));
  outcome.assignment = std::move(results.front());
  std::ranges::sort(again);
  if (!again.empty()) outcome.milliseconds = again[again.size() / 2];
  const auto [least, most] = std::ranges::minmax(outcome.assignment.loads);
  outcome.smallest_load = least;
  outcome.largest_load = most;
  return outcome;
}

// The optimum's gap is rounding, which goes by the scores' size and not by what they differ by: an
// exact solver's, on the original scores in double, stays below this part of it.
constexpr double kOptimal = 1e-9;

bool is_proved_optimal(const Outcome& outcome) {
  const assignment::Certificate& certificate = outcome.assignment.certificate;
  return certificate.valid && certificate.gap <= kOptimal * outcome.magnitude;
}

void print_json(const Options& options, const Input& input, const Outcome& outcome) {
  const assignment::Certificate& certificate = outcome.assignment.certificate;
  const Json object{{"tokens", input.problem.scores.tokens},
                    {"experts", input.problem.scores.experts},
                    {"solver", options.solver},
                    {"device", config::name_of(options.device)},
                    {"valid", certificate.valid},
                    {"primal", certificate.primal},
                    {"dual", certificate.dual},
                    {"gap", certificate.gap},
                    {"blind", certificate.blind},
                    {"relative_gap", outcome.relative_gap()},
                    {"proved_optimal", is_proved_optimal(outcome)},
                    {"milliseconds", outcome.milliseconds},
                    {"smallest_load", outcome.smallest_load},
                    {"largest_load", outcome.largest_load},
                    {"replaced_scores", outcome.assignment.replaced_scores},
                    {"repeats", options.repeat}};
  fmt::print("{}\n", object.dump());
}

// Only a certificate is called a gap: what an inexact solver's prices tell is a bound.
std::string verdict(const Options& options, const Outcome& outcome) {
  if (is_proved_optimal(outcome)) return "gap            none: nothing is better";
  const std::string most =
      fmt::format("{:.6g} ({:.3g} % of what the optimum has above a blind spread)",
                  outcome.assignment.certificate.gap, 100 * outcome.relative_gap());
  if (options.solver == "exact")
    return fmt::format("gap            {}: at most this much could be gained", most);
  return fmt::format(
      "may lack       up to {}, by the prices of {};\n"
      "               --solver exact finds the optimum, and so what is missing",
      most, options.solver);
}

void print_summary(const Options& options, const Input& input, const Outcome& outcome) {
  const assignment::Certificate& certificate = outcome.assignment.certificate;
  const assignment::ScoreMatrix& matrix = input.problem.scores;
  fmt::print("{} tokens, {} experts, solver {} on {}: {:.3f} ms{}\n\n", matrix.tokens,
             matrix.experts, options.solver, config::name_of(options.device), outcome.milliseconds,
             options.repeat > 0 ? fmt::format(" (median of {} calls)", options.repeat)
             : options.device == config::DeviceChoice::kCuda ? ""
                                                             : " (a first call)");
  fmt::print("sum of scores  {:.9g}\n", certificate.primal);
  fmt::print("upper bound    {:.9g}\n", certificate.dual);
  if (certificate.valid) fmt::print("{}\n", verdict(options, outcome));
  fmt::print(
      "valid          {}\n",
      certificate.valid ? "yes" : "no: some experts have more or fewer tokens than they may");
  fmt::print("loads          {} to {} tokens an expert\n", outcome.smallest_load,
             outcome.largest_load);
  if (outcome.assignment.replaced_scores > 0)
    fmt::print("replaced       {} scores that were not finite, by the lowest\n",
               outcome.assignment.replaced_scores);
  if (!options.out.empty()) fmt::print("experts        written to {}\n", options.out);
  if (!options.prices_out.empty()) fmt::print("prices         written to {}\n", options.prices_out);
}

int run(const CLI::App& command, const Options& options) {
  if (options.gap > 0 && options.solver != "exact")
    fail("--gap is for --solver exact, which is {}", options.solver);
  for (const std::string& path : {options.out, options.prices_out})
    if (!path.empty()) scores::check_numbers_path(path);
  const auto whole = [](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path));
  };
  if (!options.out.empty() && !options.prices_out.empty() &&
      whole(options.out) == whole(options.prices_out))
    fail("--out and --prices-out name the same file, {}", options.out);
  const auto input = read_input(command, options);
  const Outcome outcome = solve(options, *input);
  if (!options.out.empty()) scores::write_numbers(options.out, outcome.assignment.expert_of_token);
  if (!options.prices_out.empty())
    scores::write_numbers(options.prices_out, outcome.assignment.prices);
  options.json ? print_json(options, *input, outcome) : print_summary(options, *input, outcome);
  return 0;
}

void add_input_options(CLI::App& command, Options& o) {
  add_path(command, "--scores", o.scores, "FILE", "scores [tokens, experts]");
  command.add_option("--kind", o.kind, "generate scores of this kind")->type_name("NAME");
  add_number(command, "--tokens", o.tokens, "tokens to generate", 0, "T");
  add_number(command, "--experts", o.experts, "experts to generate", 1, "E");
  add_number(command, "--seed", o.seed, "of the generated scores", 0, "S")->capture_default_str();
  add_number(command, "--batch", o.batch, "other tokens of the same kind and experts", 0)
      ->capture_default_str();
  command.add_option("--capacities", o.capacities, "most tokens of each expert")
      ->type_name("LIST|FILE");
  add_path(command, "--mask", o.mask, "FILE", "1 or 0 for each token; 0: padding");
  command
      .add_option("--non-finite", o.non_finite,
                  "NaN and inf are an error, count as the lowest score, or -inf forbids the pair")
      ->check(CLI::IsMember({"reject", "lowest", "forbid"}))
      ->capture_default_str()
      ->type_name("NAME");
}

void add_solver_options(CLI::App& command, Options& o) {
  command.add_option("--solver", o.solver, "exact, auction, greedy or sinkhorn")
      ->capture_default_str()
      ->type_name("NAME");
  add_gap_option(command, o.gap);
  add_device_option(command, o.device, {"cpu", "cuda"});
  add_threads_option(command, o.threads);
  add_number(command, "--repeat", o.repeat, "solve N times more, and tell their median time", 0)
      ->capture_default_str();
  add_path(command, "--start-prices", o.start_prices, "FILE",
           "prices of similar scores, for a faster start");
  add_path(command, "--out", o.out, "FILE", "write each token's expert, as .npy (int32) or .csv");
  add_path(command, "--prices-out", o.prices_out, "FILE",
           "write the experts' prices, as .npy or .csv");
  add_json_flag(command, o.json);
}

std::string footer() {
  std::string kinds;
  for (const scores::ScoreKind kind : scores::all_score_kinds())
    kinds += fmt::format("      {:17}{}\n", scores::score_kind_name(kind), scores::describe(kind));
  std::string text = kFooter;
  return text.replace(text.find("{kinds}"), 7, kinds);
}

}  // namespace

void add_assign(CLI::App& app, Action& chosen) {
  CLI::App* command =
      add_command(app, "assign", "Assign tokens to experts: balanced, optimal, proved", footer());
  const auto options = std::make_shared<Options>();
  add_input_options(*command, *options);
  add_solver_options(*command, *options);
  command->callback([command, options, &chosen] {
    chosen = [command, options] { return run(*command, *options); };
  });
}

}  // namespace ballast::cli
