// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/export.h"

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
#include "cli/command.h"
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
  ballast export runs/mine --format hf --out models/hf  a folder that transformers loads
The weights' names and the file's metadata are described in docs/file_formats.md; any safetensors
reader opens it. With --format hf the folder has config.json and tokenizer.json at the top. A model
that transformers knows is written as GPT-2, Llama, Qwen2, Qwen3, Mixtral, OLMoE or Qwen3Moe; any
other, BASE models too, with a modeling_ballast.py beside it: load that with trust_remote_code=True
(docs/hugging_face.md).

JSON keys (--json): file, step, parameters, bytes, tokenizer (null where the run had none),
architecture (of --format hf, else null).
)";

struct Options {
  std::string model, out, format = "ballast", dtype = "fp32";
  bool average = false, overwrite = false, json = false;
};

checkpoint::Manifest manifest_of(const loading::LoadedModel& loaded) {
  checkpoint::Manifest manifest;
  manifest.step = loaded.step;
  manifest.config = config::to_toml(loaded.config);
  manifest.program_version = version();
  manifest.data = loaded.data;
  return manifest;
}

// All tensors, by the names we have for them. What they are views of is kept in `host`.
std::vector<checkpoint::TensorView> tensors_of(const loading::LoadedModel& loaded,
                                               const std::string& dtype, at::Tensor& host) {
  at::Tensor weights = loaded.table.working();
  if (dtype != "fp32") weights = weights.to(dtype == "bf16" ? at::kBFloat16 : at::kHalf);
  auto tensors = loading::segment_views(loaded.table, weights, {}, host);
  std::ranges::move(loading::price_views(*loaded.model), std::back_inserter(tensors));
  return tensors;
}

// Returns the architecture; empty: the format has none.
std::string write_model(const loading::LoadedModel& loaded, const Options& options) {
  const fs::path folder = options.out;
  at::Tensor host;
  const auto tensors = tensors_of(loaded, options.dtype, host);
  if (options.format == "hf") {
    return exchange::write_hf_folder(
        folder, {.config = loaded.config,
                 .tensors = tensors,
                 .manifest = manifest_of(loaded),
                 .tokenizer = loaded.tokenizer.get(),
                 .tokenizer_folder = loading::tokenizer_folder_of(options.model)});
  }
  if (loaded.tokenizer != nullptr) {
    make_folder(folder / "tokenizer");
    loaded.tokenizer->save(folder / "tokenizer");
  }
  checkpoint::export_weights(folder / loading::kExportedWeights, tensors, manifest_of(loaded));
  return "";
}

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
  // Weights go first and come last: where they are, the export is whole.
  fs::remove(file);
  const std::string architecture = write_model(*loaded, options);
  const fs::path tokenizer = options.format == "hf" ? folder : folder / "tokenizer";
  const auto bytes = fs::file_size(file);
  if (options.json) {
    using Json = nlohmann::ordered_json;
    const Json out = {{"file", file.string()},
                      {"step", loaded->step},
                      {"parameters", loaded->table.num_parameters()},
                      {"bytes", bytes},
                      {"tokenizer", loaded->tokenizer ? Json(tokenizer.string()) : Json()},
                      {"architecture", architecture.empty() ? Json() : Json(architecture)}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("{}: {} parameters of step {}, {}{}\n", file.string(),
             format_count(double(loaded->table.num_parameters())), loaded->step,
             format_bytes(double(bytes)), architecture.empty() ? "" : ", as " + architecture);
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "export",
                  "Write a model's weights alone, as safetensors, or for transformers", kExamples);
  command
      ->add_option("MODEL", options->model, "run directory, checkpoint, or model that was imported")
      ->required();
  add_path(*command, "--out", options->out, "DIR", "folder to write to")->required();
  command
      ->add_option("--format", options->format,
                   "ballast: weights under our names, for our commands; hf: a folder that "
                   "transformers loads")
      ->check(CLI::IsMember({"ballast", "hf"}))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "of the weights")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  add_average_option(*command, options->average);
  command->add_flag("--overwrite", options->overwrite, "replace an export that is there");
  add_json_flag(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
