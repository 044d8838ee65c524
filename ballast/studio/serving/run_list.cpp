// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/run_list.h"

#include <nlohmann/json.hpp>

#include "ballast/config/config.h"
#include "ballast/config/system_words.h"
#include "ballast/record/run_directory.h"
#include "ballast/system/file.h"
#include "ballast/system/version.h"

namespace ballast::serving {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

config::Config config_of(const std::filesystem::path& path) {
  if (!record::RunDirectory::is_run(path)) return loading::recorded_config(path);
  config::Config config;  // also before the first checkpoint
  const fs::path file = path / "config.toml";
  config::read_recorded_config(config, read_text(file), file.string());
  return config;
}

Json describe_model(const config::Config& config) {
  const config::ExpertsConfig& experts = config.experts;
  const bool is_dense = experts.layers == 0;
  Json routings = Json::array();
  if (!is_dense) routings = {"greedy"};
  if (!is_dense && experts.traits().balanced) routings = {"greedy", "priced", "balanced"};
  return {{"system", config::system_in_words(config)},
          {"layers", config.model.layers},
          {"width", config.model.width},
          {"context", config.model.context},
          {"expert_layers", is_dense ? Json::array() : Json(experts.places(config.model.layers))},
          {"experts", is_dense ? 0 : experts.count},
          {"experts_of_token", is_dense ? 0 : experts.experts_of_token()},
          {"router", is_dense ? Json() : Json(experts.router)},
          {"routings", routings},
          {"routing", is_dense ? Json() : Json(config::name_of(experts.tested_routing()))},
          {"planned_steps", config.training.steps}};
}

Json describe(const ServedModels& models, size_t number) {
  const ServedRun& run = models.runs()[number];
  const bool has_tokenizer =
      !models.how().tokenizer.empty() || !loading::tokenizer_folder_of(run.path).empty();
  Json out = {{"name", run.name},
              {"path", run.path.string()},
              {"is_run", record::RunDirectory::is_run(run.path)},
              {"training", record::RunDirectory::in_use(run.path)},
              {"steps", models.steps(number)},
              {"has_tokenizer", has_tokenizer}};
  out.update(describe_model(config_of(run.path)));
  return out;
}

}  // namespace

void add_run_list(HttpServer& server, ServedModels& models) {
  server.get("/api/runs", [&models](const HttpRequest&, const std::shared_ptr<Responder>& to) {
    Json runs = Json::array();
    for (size_t i = 0; i < models.runs().size(); ++i) runs.push_back(describe(models, i));
    to->answer({.body = text_of({{"runs", runs}})});
  });
  server.get("/health", [&models](const HttpRequest&, const std::shared_ptr<Responder>& to) {
    const TextCounts texts = models.texts();
    to->answer(
        {.body = text_of({{"status", "ok"},
                          {"version", version()},
                          {"texts", {{"written", texts.written}, {"waiting", texts.waiting}}}})});
  });
}

}  // namespace ballast::serving
