// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/import.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "ballast/comm/single.h"
#include "ballast/exchange/tokenizer_files.h"
#include "ballast/loading/framing.h"
#include "ballast/loading/loaded_model.h"
#include "ballast/model/language_model.h"
#include "ballast/model/model_size.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "ballast/tokens/token_source.h"
#include "cli/command.h"
#include "cli/commands.h"

namespace ballast::cli {
namespace {

constexpr const char* kExamples = R"(
Examples
  ballast import models/Llama-3.2-1B --out models/llama
  ballast generate models/llama --prompt "Once"
  ballast train --init-from models/llama --data data/mine --run runs/tuned
  ballast import models/Mistral-MoE --out models/moe --context 4096
A folder as transformers saves one: config.json, model.safetensors (or its shards and their index)
and tokenizer.json. Weights keep their precision. Architectures: GPT2LMHeadModel,
LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, MixtralForCausalLM, OlmoeForCausalLM,
Qwen3MoeForCausalLM, and BallastForCausalLM, which `ballast export --format hf` wrote and
transformers saved again. What cannot be represented is refused by name; pickles (.bin, .pt) are
never opened. docs/hugging_face.md says what becomes what.

JSON keys (--json): file, architecture, parameters, bytes, tokenizer (null where there is none).
)";

struct Options {
  std::string folder, out;
  int64_t context = 0;
  bool overwrite = false, json = false;
};

// The tokenizer's files beside the weights; null: there is none that we can use.
std::unique_ptr<tokenizer::Tokenizer> take_tokenizer(const fs::path& from, const fs::path& to) {
  if (!fs::exists(from / "tokenizer.json")) {
    log_warning("{} has no tokenizer.json: the model has no tokenizer", from.string());
    return nullptr;
  }
  try {
    auto loaded = tokenizer::load_tokenizer((from / "tokenizer.json").string());
    make_folder(to);
    exchange::copy_tokenizer_files(from, to);
    return loaded;
  } catch (const UserError& error) {
    log_warning("the model has no tokenizer: {}", error.what());
    return nullptr;
  }
}

// Tensors of a model of ours come under the names we have for them: all must be there, and no more.
void check_tensors(const exchange::ImportedModel& imported, const std::string& folder) {
  const auto alone = comm::open_single_group("model", 0);
  parameters::ParameterTable table;
  const model::LanguageModel model(imported.config(), table, *alone);
  std::map<std::string, std::vector<int64_t>> wanted;
  for (const parameters::Segment& segment : table.segments()) wanted[segment.name] = segment.shape;
  for (const auto& layer : model.expert_layers()) {
    if (layer->router().prices() != nullptr)
      wanted[layer->name() + ".prices"] = {imported.config().experts.count};
  }
  for (const checkpoint::TensorView& tensor : imported.tensors()) {
    const auto found = wanted.find(tensor.name);
    if (found == wanted.end())
      fail("{}: the model of its config.json has no tensor {}", folder, tensor.name);
    if (found->second != tensor.shape) {
      fail("{}: tensor {} is {}, but by config.json it is {}", folder, tensor.name,
           checkpoint::describe(tensor.dtype, tensor.shape),
           checkpoint::describe(tensor.dtype, found->second));
    }
    wanted.erase(found);
  }
  if (!wanted.empty()) fail("{} lacks tensor {}", folder, wanted.begin()->first);
}

int run(const Options& options) {
  const exchange::ImportedModel model(options.folder, options.context);
  if (model.family() == exchange::Family::kBallast) check_tensors(model, options.folder);
  const fs::path folder = options.out, file = folder / loading::kExportedWeights;
  if (fs::exists(folder) && fs::equivalent(folder, options.folder))
    fail("--out: {} is the folder to import; choose another", options.out);
  if (fs::exists(file) && !options.overwrite)
    fail("{} is there already: choose another --out, or add --overwrite", file.string());
  make_folder(folder);
  const auto tokenizer = take_tokenizer(options.folder, folder / "tokenizer");
  checkpoint::Manifest manifest;
  if (tokenizer != nullptr)
    manifest.data.push_back({"tokenizer", options.folder, tokens::fingerprint_text(*tokenizer)});
  if (tokenizer != nullptr && tokenizer::has_frame(*tokenizer))
    manifest.data.push_back(loading::entry_of_frame());
  exchange::write_imported(file, model, std::move(manifest));
  const std::string architecture(exchange::traits_of(model.family()).architecture);
  const int64_t parameters = model::model_size(model.config()).total;
  const auto bytes = fs::file_size(file);
  if (options.json) {
    using Json = nlohmann::ordered_json;
    const Json out = {{"file", file.string()},
                      {"architecture", architecture},
                      {"parameters", parameters},
                      {"bytes", bytes},
                      {"tokenizer", tokenizer ? Json((folder / "tokenizer").string()) : Json()}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("{}: {} with {} parameters, {}\n", file.string(), architecture,
             format_count(double(parameters)), format_bytes(double(bytes)));
  return 0;
}

}  // namespace

void add_import(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "import", "Take over a model from a Hugging Face folder", kExamples);
  command->add_option("FOLDER", options->folder, "the model, as transformers saves one")
      ->required();
  add_path(*command, "--out", options->out, "DIR", "folder to write to")->required();
  add_number(*command, "--context", options->context,
             "tokens the model is to have room for, where its positions are not learned; "
             "default: as many as it says");
  command->add_flag("--overwrite", options->overwrite, "replace a model that is there");
  add_json_flag(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
