// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/assignment/solver.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"
#include "ballast/system/stop_signal.h"
#include "cli/assignment_run.h"
#include "cli/bench/assignment_cases.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/median.h"
#include "cli/bench/options.h"
#include "cli/bench/scipy_peer.h"
#include "cli/command.h"
#include "cli/place_options.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
Solvers take turns on the same scores, so that a busy machine slows all alike. Times are medians of
solving alone. The exact solver starts
  cold     from nothing
  warm     from the prices of similar scores: another batch of the kind; for a file its even rows,
           and then the odd rows are solved
  noisy    from those with 10 % noise
  random   from prices that mean nothing: never much slower than cold
Short: how far a result is below the best bound that any solver here has proved (bound_by), in
percent of what that bound has above a blind spread, which gives each token its mean score. Where
exact takes part without --gap, that bound is the optimum, up to rounding. Otherwise the result
lacks at most so much.
With --problems N of a size are solved at a time: on a GPU in one launch, as the groups of a layer
are, on the CPU one after another. Times and sums are of all of them. A file's rows are dealt out.
Where scores are tied the auction takes seconds at the two largest sizes: it is left out there
unless --solvers names it. scipy's linear_sum_assignment takes part in single problems of up to
2048 tokens, once.

Examples
  ballast bench assignment
  ballast bench assignment --kinds gauss cluster --sizes 2048,128 16384,128 --repeats 21
  ballast bench assignment --scores scores/*.npy --solvers exact --cold
  ballast bench assignment --device cuda --gap 0.001 --problems 16 --sizes 2048,32 --json

JSON keys (--json): device, threads, repeats, gap (allowed), problems (solved at a time), scipy
  (version, null: none), cases, a list of {scores, part (all, or "odd rows"), tokens, experts,
  auction_over_exact, scipy_over_exact (times, null: not measured), bound_by (the solver that
  proved the lowest bound), results, a list of {solver, start, milliseconds, fastest_ms,
  slowest_ms, runs, gap (that bound less its sum of scores; null where shares are not kept),
  relative_gap (that over what the bound has above a blind spread), valid}}.
)";

constexpr int64_t kMostForAuction = int64_t{1} << 22;  // scores; beyond, ties take it seconds
constexpr int64_t kMostForScipy = 2048;                // tokens
constexpr double kEnough = 4000;  // milliseconds: a solver that used them up repeats no more

struct Options {
  std::vector<std::string> scores, kinds, solvers;
  std::vector<std::string> sizes = {"2048,8",    "2048,128",  "8192,128",
                                    "16384,128", "32768,256", "65536,512"};
  std::string python;
  uint64_t seed = 1;
  int64_t problems = 1;
  double gap = 0;
  bool cold = false, no_scipy = false;
  BenchOptions bench = {.device = config::DeviceChoice::kCpu, .threads = 1, .rounds = 7};

  size_t threads() const { return usable_threads(static_cast<size_t>(bench.threads)); }
};

// One solver from one start.
struct Measured {
  std::string solver, start;
  std::vector<double> milliseconds = {};
  // The least sum of scores of all runs, and the last bound by its prices; of all problems.
  double primal = std::numeric_limits<double>::infinity(), dual = 0, blind = 0;
  bool valid = true;

  double median() const { return cli::median(milliseconds); }
};

std::vector<assignment::SolverKind> solvers_for(const Options& options,
                                                const AssignmentCase& made) {
  std::vector<assignment::SolverKind> kinds;
  for (const std::string& name : options.solvers)
    kinds.push_back(assignment::parse_solver_kind(name));
  if (!kinds.empty()) return kinds;
  const int64_t scores = made.tokens() * made.experts();
  kinds = {assignment::SolverKind::kExact};
  if (scores <= kMostForAuction) kinds.push_back(assignment::SolverKind::kAuction);
  if (options.bench.device == config::DeviceChoice::kCpu)
    kinds.push_back(assignment::SolverKind::kSinkhorn);  // it runs nowhere else
  kinds.push_back(assignment::SolverKind::kGreedy);
  return kinds;
}

// A solver with all it is measured from.
struct Contender {
  std::unique_ptr<AssignmentRun> run;
  std::vector<PriceStart> starts = {};
  std::vector<Measured> measured = {};
  double spent = 0;

  // A first turn warms up: the second takes its place.
  void take_turn(int64_t round) {
    std::vector<assignment::Assignment> results;
    for (size_t i = 0; i < starts.size(); ++i) {
      const double milliseconds = run->solve(starts[i].prices, results);
      Measured& found = measured[i];
      if (round == 1) found.milliseconds.clear();
      found.milliseconds.push_back(milliseconds);
      found.dual = found.blind = 0;
      double primal = 0;
      for (const assignment::Assignment& result : results) {
        primal += result.certificate.primal;
        found.dual += result.certificate.dual;
        found.blind += result.certificate.blind;
        found.valid = found.valid && result.certificate.valid;
      }
      found.primal = std::min(found.primal, primal);
      spent += milliseconds;
    }
  }
};

std::vector<Measured> measure(const Options& options, const AssignmentCase& made,
                              const StopSignal& stop) {
  const std::vector<PriceStart> starts =
      options.cold ? std::vector<PriceStart>{{.name = "cold", .prices = {}}} : price_starts(made);
  std::vector<Contender> contenders;
  for (const assignment::SolverKind kind : solvers_for(options, made)) {
    Contender contender{.run = make_assignment_run({.solver = kind,
                                                    .device = options.bench.device,
                                                    .threads = options.threads(),
                                                    .gap = options.gap})};
    contender.run->load(made.problems);
    contender.starts = starts;
    if (kind != assignment::SolverKind::kExact)
      contender.starts.resize(1);  // the others start cold
    for (const PriceStart& start : contender.starts)
      contender.measured.push_back(
          {.solver = std::string(assignment::solver_name(kind)), .start = start.name});
    contenders.push_back(std::move(contender));
  }
  for (int64_t round = 0; round <= options.bench.rounds; ++round) {
    for (Contender& contender : contenders) {
      if (stop.requested()) fail("stopped before the end");
      if (contender.spent <= kEnough) contender.take_turn(round);
    }
  }
  std::vector<Measured> all;
  for (Contender& contender : contenders)
    std::ranges::move(contender.measured, std::back_inserter(all));
  return all;
}

// It proves no bound.
Measured measure_scipy(ScipyPeer& scipy, const AssignmentCase& made) {
  const ScipyPeer::Answer answer = scipy.solve(made.problems.front());
  return {.solver = "scipy",
          .start = "cold",
          .milliseconds = {answer.milliseconds},
          .primal = answer.primal,
          .dual = std::numeric_limits<double>::infinity()};
}

// The lowest bound on what any valid assignment is worth: all are measured by it, so that a rough
// bound of an inexact solver's own prices is not taken for what it lacks.
const Measured& best_bound(const std::vector<Measured>& results) {
  return *std::ranges::min_element(results, {}, &Measured::dual);
}

const Measured* find(const std::vector<Measured>& results, const std::string& solver) {
  const auto found = std::ranges::find(results, solver, &Measured::solver);  // its cold start
  return found == results.end() ? nullptr : &*found;
}

Json ratio_to_exact(const std::vector<Measured>& results, const std::string& solver) {
  const Measured *exact = find(results, "exact"), *other = find(results, solver);
  return exact && other ? Json(other->median() / exact->median()) : Json();
}

Json to_json(const AssignmentCase& made, const std::vector<Measured>& results) {
  Json rows = Json::array();
  const Measured& bound = best_bound(results);
  for (const Measured& found : results) {
    const double gap = assignment::relative_gap(found.primal, bound.dual, bound.blind);
    rows.push_back({{"solver", found.solver},
                    {"start", found.start},
                    {"milliseconds", found.median()},
                    {"fastest_ms", std::ranges::min(found.milliseconds)},
                    {"slowest_ms", std::ranges::max(found.milliseconds)},
                    {"runs", found.milliseconds.size()},
                    {"gap", found.valid ? Json(bound.dual - found.primal) : Json()},
                    {"relative_gap", found.valid ? Json(gap) : Json()},
                    {"valid", found.valid}});
  }
  return {{"scores", made.scores},
          {"part", made.part},
          {"tokens", made.tokens()},
          {"experts", made.experts()},
          {"auction_over_exact", ratio_to_exact(results, "auction")},
          {"scipy_over_exact", ratio_to_exact(results, "scipy")},
          {"bound_by", bound.solver},
          {"results", rows}};
}

// "1.234", with the digits that matter.
std::string short_number(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value)
         : value >= 1 ? fmt::format("{:.2f}", value)
                      : fmt::format("{:.3f}", value);
}

std::string heading() {
  return fmt::format("{:36}{:>8}{:>5}  {:9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>7}{:>10}", "scores",
                     "tokens", "exp.", "solver", "cold ms", "warm", "noisy", "random", "short %",
                     "valid", "vs exact");
}

std::string table(const AssignmentCase& made, const std::vector<Measured>& results) {
  const std::string name = fs::path(made.scores).stem().string();
  const std::string shown = made.part == "all" ? name : name + ", " + made.part;
  std::string text;
  const Measured& bound = best_bound(results);
  for (size_t i = 0; i < results.size();) {
    const Measured& cold = results[i];
    std::string times;
    double gap = 0;
    bool valid = true;
    size_t columns = 0;
    for (; i < results.size() && results[i].solver == cold.solver; ++i, ++columns) {
      times += fmt::format("{:>9}", short_number(results[i].median()));
      gap = std::max(gap, assignment::relative_gap(results[i].primal, bound.dual, bound.blind));
      valid = valid && results[i].valid;
    }
    const Json ratio = ratio_to_exact(results, cold.solver);
    text += fmt::format("{:36}{:>8}{:>5}  {:9}{:36}{:>10}{:>7}{:>10}\n", i == columns ? shown : "",
                        made.tokens(), made.experts(), cold.solver, times,
                        valid ? fmt::format("{:.3g}", 100 * gap) : "-", valid ? "yes" : "no",
                        ratio.is_null() ? "" : short_number(ratio.get<double>()) + "x");
  }
  return text;
}

std::vector<CaseMaker> cases_of(const Options& options) {
  std::vector<CaseMaker> makers;
  std::vector<scores::ScoreKind> kinds;
  for (const std::string& name : options.kinds) kinds.push_back(scores::parse_score_kind(name));
  if (options.kinds.empty() && options.scores.empty())
    kinds.assign(scores::all_score_kinds().begin(), scores::all_score_kinds().end());
  for (const std::string& size : options.sizes) {
    int64_t tokens = 0, experts = 0;
    char rest = 0;
    if (std::sscanf(size.c_str(), "%ld,%ld%c", &tokens, &experts, &rest) != 2 || tokens < 1 ||
        experts < 1)
      fail("--sizes: want TOKENS,EXPERTS, such as 2048,128; got \"{}\"", size);
    for (const scores::ScoreKind kind : kinds)
      makers.push_back(
          generated_case({.kind = kind, .tokens = tokens, .experts = experts, .seed = options.seed},
                         options.problems));
  }
  for (const std::string& path : options.scores)
    std::ranges::move(file_cases(path, options.problems), std::back_inserter(makers));
  return makers;
}

int run(const Options& options) {
  for (const std::string& name : options.solvers) {
    assignment::parse_solver_kind(name);
    if (std::ranges::count(options.solvers, name) > 1) fail("--solvers names {} twice", name);
  }
  const StopSignal stop;
  const std::vector<CaseMaker> makers = cases_of(options);
  const auto scipy = options.no_scipy ? nullptr : ScipyPeer::find(options.python);
  Json cases = Json::array();
  print_row(options.bench, heading());
  Progress progress("bench assignment", makers.size(), "cases", OffTerminal::kSilent);
  for (const CaseMaker& make : makers) {
    const AssignmentCase made = make();
    progress.note({{fmt::format("{} {},{}", made.scores, made.tokens(), made.experts())}});
    std::vector<Measured> results = measure(options, made, stop);
    if (scipy && made.problems.size() == 1 && made.tokens() <= kMostForScipy)
      results.push_back(measure_scipy(*scipy, made));
    cases.push_back(to_json(made, results));
    std::string lines = table(made, results);
    lines.pop_back();
    print_row(options.bench, lines);
    progress.advance(1);
  }
  if (options.bench.json) {
    const Json out = {{"device", config::name_of(options.bench.device)},
                      {"threads", options.threads()},
                      {"repeats", options.bench.rounds},
                      {"gap", options.gap},
                      {"problems", options.problems},
                      {"scipy", scipy ? Json(scipy->version()) : Json()},
                      {"cases", cases}};
    fmt::print("{}\n", out.dump(2));
    std::fflush(stdout);  // as a whole, while a signal can wait
  }
  return 0;
}

}  // namespace

void add_bench_assignment(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "assignment", "Balanced assignment: every solver, kind and size", kFooter);
  add_path(*command, "--scores", options->scores, "FILE", "score files, as `assign` reads them");
  command
      ->add_option("--kinds", options->kinds,
                   "kinds of generated scores; default: all, or none with --scores")
      ->type_name("NAME");
  command
      ->add_option("--sizes", options->sizes, "of generated scores; default: six, up to 65536,512")
      ->type_name("T,E");
  command
      ->add_option("--solvers", options->solvers, "exact, auction, sinkhorn, greedy; default: all")
      ->type_name("NAME");
  add_number(*command, "--problems", options->problems, "of a size, solved at a time")
      ->capture_default_str();
  add_gap_option(*command, options->gap);
  add_device_option(*command, options->bench.device, {"cpu", "cuda"});
  add_bench_options(*command, options->bench);
  add_number(*command, "--seed", options->seed, "of the generated scores", 0, "S")
      ->capture_default_str();
  command->add_flag("--cold", options->cold, "measure cold starts alone");
  add_path(*command, "--python", options->python, "PATH", "a Python with scipy");
  command->add_flag("--no-scipy", options->no_scipy, "measure ours alone");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
