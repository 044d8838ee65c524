// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "ballast/inference/evaluate.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"
#include "ballast/system/stop_signal.h"
#include "ballast/tokens/prepare.h"
#include "ballast/tokens/token_dataset.h"
#include "ballast/training/training_data.h"
#include "cli/commands.h"
#include "cli/model_options.h"

namespace ballast::cli {
namespace {

constexpr const char* kExamples = R"(
Examples
  On the run's own validation data:
    ballast eval runs/mine
  On any text, each token predicted with at least half a context before it:
    ballast eval runs/mine --data book.txt --stride 128
  On prepared data, for another program:
    ballast eval runs/mine --data data/other --split valid --json

JSON keys (--json): model, step, data, loss (nats a token), perplexity, bits_per_byte (null where the
  text's size is unknown), tokens, stride, floor_per_token (nats; null where the law is unknown).
)";

struct Options {
  ModelOptions model;
  std::vector<std::string> data;
  std::string split = "valid";
  int64_t stride = 0, batch = 8;
  bool json = false;
};

// A folder in the system's temporary place, deleted with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "ballast-eval-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      fail("cannot create a folder in {}", fs::temp_directory_path().string());
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

bool holds_tokens(const fs::path& path) {
  return TokenDataset::is_dataset(path) || path.extension() == ".bin" || path.extension() == ".idx";
}

// The run's own validation data; an export has none lying about it, so that goes to `scratch`.
std::shared_ptr<TokenSource> own_data(const Options& options, const LoadedModel& loaded,
                                      const fs::path& scratch) {
  const fs::path folder = tokenizer_folder_of(options.model.path).parent_path();
  const bool in_run = TokenDataset::is_dataset(folder / "data");
  TrainingData data = open_training_data(loaded.config.data, (in_run ? folder : scratch) / "data");
  if (data.valid == nullptr)
    fail("the run has no validation data of its own: name some with --data");
  return data.valid;
}

std::shared_ptr<TokenSource> open_tokens(const Options& options) {
  std::vector<std::unique_ptr<TokenSource>> parts;
  for (const std::string& path : options.data) {
    if (!holds_tokens(path))
      fail("--data: {} is text and others are tokens: evaluate them one after the other", path);
    check_before_use(path);
    parts.push_back(open_token_source(path, options.split));
  }
  if (parts.size() == 1) return std::move(parts.front());
  return concatenate(std::move(parts), {.name = "the data", .format = "several"});
}

// Tokens as they are; text goes through the model's tokenizer, on disk, so that its size does not
// matter.
std::shared_ptr<TokenSource> open_data(const Options& options, const LoadedModel& loaded,
                                       const fs::path& scratch) {
  if (options.data.empty()) return own_data(options, loaded, scratch);
  if (std::ranges::any_of(options.data, holds_tokens)) return open_tokens(options);
  const Tokenizer& tokenizer = require_tokenizer(loaded);
  tokenizer.save(scratch / "tokenizer");
  PrepareRequest request;
  request.inputs = options.data;
  request.out = scratch / "data";
  request.valid_fraction = 0;
  request.tokenizer = (scratch / "tokenizer").string();
  prepare(request);
  return open_token_source(request.out, "train");
}

int run(const Options& options) {
  const auto world = open_world({.kind = WorldKind::kSingle});
  const auto loaded = load(options.model, *world);
  const TemporaryFolder scratch;
  const std::shared_ptr<TokenSource> source = open_data(options, *loaded, scratch.path());
  if (loaded->tokenizer != nullptr) require_same_tokenizer(*source, *loaded->tokenizer);
  source->limit_vocabulary(static_cast<uint64_t>(loaded->config.model.vocabulary));
  const int64_t stride = options.stride > 0 ? options.stride : loaded->config.model.context;
  const EvalWindows windows(source, loaded->config.model.context, stride);
  const StopSignal signal;
  Evaluation result;
  {
    Progress progress("eval", windows.size(), "windows");
    result = evaluate(*loaded->model, loaded->place, windows, {.batch = options.batch},
                      [&](uint64_t count) {
                        progress.advance(count);
                        return !signal.requested();
                      });
  }
  if (result.tokens < windows.predictions()) fail("stopped before the end: nothing to report");
  const auto floor = source->floor_per_token();
  if (options.json) {
    using Json = nlohmann::ordered_json;
    const Json out = {
        {"model", loaded->path.string()},
        {"step", loaded->step},
        {"data", options.data.empty() ? source->info().name
                                      : fmt::format("{}", fmt::join(options.data, ","))},
        {"loss", result.loss},
        {"perplexity", result.perplexity},
        {"bits_per_byte", result.bits_per_byte ? Json(*result.bits_per_byte) : Json()},
        {"tokens", result.tokens},
        {"stride", stride},
        {"floor_per_token", floor ? Json(*floor) : Json()}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("{} (step {})\n  loss           {:.4f} nats a token\n  perplexity     {:.3f}\n",
             loaded->path.string(), loaded->step, result.loss, result.perplexity);
  if (result.bits_per_byte) fmt::print("  bits per byte  {:.4f}\n", *result.bits_per_byte);
  if (floor)
    fmt::print("  entropy floor  {:.4f} nats a token (perplexity {:.3f})\n", *floor,
               std::exp(*floor));
  fmt::print("  tokens         {}\n", result.tokens);
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("eval", "Measure a model's loss and perplexity on text or tokens");
  command->footer(kExamples);
  add_model_options(*command, options->model);
  command
      ->add_option("--data", options->data,
                   "text files, folders, - (stdin), prepared data or token files; default: the "
                   "run's validation data")
      ->type_name("PATH");
  command->add_option("--split", options->split, "which split of prepared data")
      ->check(CLI::IsMember({"train", "valid"}))
      ->capture_default_str();
  command
      ->add_option(
          "--stride", options->stride,
          "new tokens a window predicts; smaller: more context, slower; default: the context")
      ->check(CLI::PositiveNumber);
  command->add_option("--batch", options->batch, "windows at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "print the result as one JSON object on stdout");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
