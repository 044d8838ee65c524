// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "ballast/comm/world.h"
#include "ballast/model/model_size.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/log.h"
#include "ballast/system/parallel.h"
#include "ballast/system/random.h"
#include "ballast/training/compute_rate.h"
#include "ballast/training/trainer.h"
#include "cli/child_process.h"
#include "cli/commands.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kExamples = R"(
The same model and step (forward, backward, clipping, AdamW) as the plain PyTorch twin in
benchmarks/twin, in turns: a few steps here, a few there, so that noise meets both alike.

Examples
  ballast bench step                              both standard sizes, beside PyTorch if it is found
  ballast bench step --size 512,256,6,8,256,8     vocabulary, width, layers, heads, context, batch
  ballast bench step --python /path/to/python --mode compile --json
The twin needs a Python with torch: `make twin` makes one, and it is found by itself.

JSON keys (--json): device, threads, twin (PyTorch version, null: none), mode, sizes, a list of
  {vocabulary, width, layers, heads, context, batch, parameters, step_ms, tokens_per_second,
  gflops_per_second, twin_step_ms, twin_tokens_per_second, speedup}; times are medians.
)";

struct Size {
  int64_t vocabulary, width, layers, heads, context, batch;
};

struct Options {
  std::vector<std::string> sizes = {"256,128,4,4,128,16", "4096,256,6,4,256,8"};
  std::string device = "auto", python, mode = "eager";
  int64_t threads = 0, rounds = 7, steps = 5;
  bool no_twin = false, json = false;
};

Size parse_size(const std::string& text) {
  Size size{};
  char rest = 0;
  if (std::sscanf(text.c_str(), "%ld,%ld,%ld,%ld,%ld,%ld%c", &size.vocabulary, &size.width,
                  &size.layers, &size.heads, &size.context, &size.batch, &rest) != 6) {
    fail("--size: want six numbers, vocabulary,width,layers,heads,context,batch; got \"{}\"", text);
  }
  return size;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The repository's or the packed folder's benchmarks/twin, seen from the program.
fs::path twin_folder() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& up : {program / ".." / "..", program / ".."}) {
    if (fs::exists(up / "benchmarks" / "twin" / "step_twin.py"))
      return fs::canonical(up / "benchmarks" / "twin");
  }
  return {};
}

std::string find_python(const Options& options, const fs::path& twin) {
  if (!options.python.empty()) {
    return options.python.find('/') == std::string::npos ? options.python
                                                         : fs::absolute(options.python).string();
  }
  const fs::path own = twin / ".." / ".." / ".deps" / "twin" / "bin" / "python";
  return fs::exists(own) ? fs::absolute(own).lexically_normal().string() : "python3";
}

std::unique_ptr<ChildProcess> start_twin(const Options& options, const Size& size,
                                         const ComputePlace& place, std::string& twin_version) {
  const fs::path folder = twin_folder();
  if (options.no_twin || folder.empty()) return nullptr;
  const Json arguments = {
      {"vocabulary", size.vocabulary},
      {"width", size.width},
      {"layers", size.layers},
      {"heads", size.heads},
      {"context", size.context},
      {"batch", size.batch},
      {"threads", options.threads > 0 ? static_cast<size_t>(options.threads) : num_cores()},
      {"device", place.device.is_cpu() ? "cpu" : "cuda"},
      {"mode", options.mode}};
  try {
    auto twin = std::make_unique<ChildProcess>(
        std::vector<std::string>{find_python(options, folder), "step_twin.py", arguments.dump()},
        folder.string());
    twin_version = Json::parse(twin->read_line()).at("ready");
    return twin;
  } catch (const UserError& error) {
    if (!options.python.empty()) throw;
    log_warning("no PyTorch to compare with: {} (`make twin` installs one)", error.what());
    return nullptr;
  }
}

Trainer make_trainer(const Options& options, const Size& size, const ComputePlace& place,
                     Communicator& workers) {
  Config config;
  for (const auto& [key, value] : {std::pair("vocabulary", size.vocabulary),
                                   {"width", size.width},
                                   {"layers", size.layers},
                                   {"heads", size.heads},
                                   {"context", size.context}}) {
    set_knob(config, fmt::format("model.{}", key), std::to_string(value));
  }
  if (size.vocabulary == 0) fail("--size: want a vocabulary of at least 1");
  set_knob(config, "training.batch", std::to_string(size.batch));
  config.optimizer.weight_decay = 0.01;
  config.training.steps = (options.rounds + 1) * options.steps;
  check_config(config);
  RandomStream random(1, "bench");
  std::vector<int64_t> tokens(static_cast<size_t>(size.batch * size.context * 8 + 1));
  for (int64_t& token : tokens)
    token = static_cast<int64_t>(random.below(static_cast<uint64_t>(size.vocabulary)));
  return Trainer(
      config, place,
      {{tokens_in_memory(std::move(tokens), {.name = "random tokens", .format = "memory"}), 1.0}},
      workers);
}

Json measure(const Options& options, const Size& size, const ComputePlace& place,
             std::string& twin_version) {
  const auto world = open_world({.kind = WorldKind::kSingle});
  Trainer trainer = make_trainer(options, size, place, world->everyone());
  const auto twin = start_twin(options, size, place, twin_version);
  std::vector<double> ours, theirs;
  for (int64_t round = 0; round <= options.rounds; ++round) {  // the first warms up
    for (int64_t i = 0; i < options.steps; ++i) {
      const double seconds = trainer.step().seconds;
      if (round > 0) ours.push_back(seconds);
    }
    if (twin == nullptr) continue;
    twin->write_line(std::to_string(options.steps));
    const auto seconds = Json::parse(twin->read_line()).get<std::vector<double>>();
    if (round > 0) theirs.insert(theirs.end(), seconds.begin(), seconds.end());
  }
  const auto tokens = static_cast<double>(size.batch * size.context);
  const ModelSize counted = model_size(trainer.config());
  const double step = median(ours);
  Json row = {{"vocabulary", size.vocabulary},
              {"width", size.width},
              {"layers", size.layers},
              {"heads", size.heads},
              {"context", size.context},
              {"batch", size.batch},
              {"parameters", counted.total},
              {"step_ms", 1e3 * step},
              {"tokens_per_second", tokens / step},
              {"gflops_per_second", tokens * counted.flops_per_token / step / 1e9},
              {"twin_step_ms", nullptr},
              {"twin_tokens_per_second", nullptr},
              {"speedup", nullptr}};
  if (!theirs.empty()) {
    const double other = median(theirs);
    row["twin_step_ms"] = 1e3 * other;
    row["twin_tokens_per_second"] = tokens / other;
    row["speedup"] = other / step;
  }
  return row;
}

int run(const Options& options) {
  const ComputePlace place = choose_place({.device = options.device, .threads = options.threads});
  std::string twin_version;
  Json rows = Json::array();
  // Rows as they come: the result itself, or beside --json what people see meanwhile.
  const auto report = [&](const std::string& line) {
    options.json ? log_line(line) : fmt::print("{}\n", line);
  };
  for (const std::string& text : options.sizes) {
    const Size size = parse_size(text);
    rows.push_back(measure(options, size, place, twin_version));
    const Json& row = rows.back();
    const std::string beside =
        row["speedup"].is_null()
            ? ""
            : fmt::format(" | PyTorch {} {} {:.2f} ms | {:.2f}x", options.mode, twin_version,
                          row["twin_step_ms"].get<double>(), row["speedup"].get<double>());
    report(fmt::format(
        "V={} D={} L={} H={} S={} B={} | {:.2f} ms a step | {:.0f} tok/s | {:.0f} GFLOP/s{}",
        size.vocabulary, size.width, size.layers, size.heads, size.context, size.batch,
        row["step_ms"].get<double>(), row["tokens_per_second"].get<double>(),
        row["gflops_per_second"].get<double>(), beside));
  }
  if (options.json) {
    const Json out = {
        {"device", place.device.str()},
        {"threads", options.threads > 0 ? static_cast<size_t>(options.threads) : num_cores()},
        {"twin", twin_version.empty() ? Json() : Json(twin_version)},
        {"mode", options.mode},
        {"sizes", rows}};
    fmt::print("{}\n", out.dump(2));
  }
  return 0;
}

}  // namespace

void add_bench_step(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      bench.add_subcommand("step", "Training steps, beside the same model in PyTorch");
  command->footer(kExamples);
  command->add_option("--size", options->sizes, "vocabulary,width,layers,heads,context,batch")
      ->type_name("V,D,L,H,S,B")
      ->capture_default_str();
  command->add_option("--device", options->device, "where to compute")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads; 0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "turns each takes")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--steps", options->steps, "steps a turn")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--python", options->python, "a Python with torch")->type_name("PATH");
  command->add_option("--mode", options->mode, "how the twin runs")
      ->check(CLI::IsMember({"eager", "compile"}))
      ->capture_default_str();
  command->add_flag("--no-twin", options->no_twin, "measure ours alone");
  command->add_flag("--json", options->json, "print the result as one JSON object on stdout");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
