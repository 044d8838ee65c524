// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/loading/weights.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/progress.h"
#include "ballast/system/version.h"
#include "cli/commands.h"
#include "cli/model_options.h"

namespace ballast::cli {
namespace {

constexpr const char* kExamples = R"(
Examples
  ballast export runs/mine --out models/mine            model.safetensors and the tokenizer
  ballast export runs/mine --out models/mine --dtype bf16
  ballast export runs/mine --out models/mine --average  the average of weights that the run kept
  ballast generate models/mine
The weights' names and the file's metadata are described in docs/file_formats.md; any safetensors
reader opens it.

JSON keys (--json): file, step, parameters, bytes, tokenizer (null where the run had none).
)";

struct Options {
  std::string model, out, dtype = "fp32";
  bool average = false, overwrite = false, json = false;
};

int run(const Options& options) {
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  const auto loaded = loading::load_model(
      {.path = options.model,
       .device = config::DeviceChoice::kCpu,
       .precision = config::Precision::kFp32,
       .weights = options.average ? loading::Weights::kAverage : loading::Weights::kLast},
      *world);
  const fs::path folder = options.out, file = folder / loading::kExportedWeights;
  if (fs::exists(folder / "run.json") || fs::exists(folder / checkpoint::kManifestName)) {
    fail("{} is a run or a checkpoint: export to a folder of its own", folder.string());
  }
  if (fs::exists(file) && !options.overwrite)
    fail("{} is there already: choose another --out, or add --overwrite", file.string());
  make_folder(folder);
  checkpoint::Manifest manifest;
  manifest.step = loaded->step;
  manifest.config = config::to_toml(loaded->config);
  manifest.program_version = version();
  manifest.data = loaded->data;
  at::Tensor weights = loaded->table.working(), host;
  if (options.dtype == "bf16") weights = weights.to(at::kBFloat16);
  auto tensors = loading::segment_views(loaded->table, weights, {}, host);
  std::ranges::move(loading::price_views(*loaded->model), std::back_inserter(tensors));
  checkpoint::export_weights(file, tensors, manifest);
  if (loaded->tokenizer != nullptr) {
    make_folder(folder / "tokenizer");
    loaded->tokenizer->save(folder / "tokenizer");
  }
  const auto bytes = fs::file_size(file);
  if (options.json) {
    using Json = nlohmann::ordered_json;
    const Json out = {
        {"file", file.string()},
        {"step", loaded->step},
        {"parameters", loaded->table.num_parameters()},
        {"bytes", bytes},
        {"tokenizer", loaded->tokenizer ? Json((folder / "tokenizer").string()) : Json()}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("{}: {} parameters of step {}, {}\n", file.string(),
             format_count(double(loaded->table.num_parameters())), loaded->step,
             format_bytes(double(bytes)));
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("export", "Write a model's weights alone, as safetensors");
  command->footer(kExamples);
  command->add_option("MODEL", options->model, "run directory or checkpoint")->required();
  command->add_option("--out", options->out, "folder to write to")->required()->type_name("DIR");
  command->add_option("--dtype", options->dtype, "of the weights")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  add_average_option(*command, options->average);
  command->add_flag("--overwrite", options->overwrite, "replace an export that is there");
  command->add_flag("--json", options->json, "print the result as one JSON object on stdout");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
