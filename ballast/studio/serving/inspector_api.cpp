// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/inspector_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ballast/config/system_words.h"
#include "ballast/inference/inspection.h"
#include "ballast/studio/serving/expert_view.h"
#include "ballast/studio/serving/inspector_json.h"
#include "ballast/studio/serving/validation_samples.h"
#include "ballast/system/error.h"
#include "ballast/system/json.h"
#include "ballast/system/number_from.h"

namespace ballast::serving {
namespace {

using experts::RoutingMode;
using To = std::shared_ptr<Responder>;

// The value of a query, or nothing.
std::optional<std::string> given(const HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  if (found == request.query.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

uint64_t whole_number(const std::string& text, const std::string& name) {
  const auto value = number_from<uint64_t>(text);
  constexpr uint64_t kMost = uint64_t{1} << 53;  // what numbers of JSON hold
  if (!value || *value > kMost) fail("{}: \"{}\" is not a whole number", name, text);
  return *value;
}

uint64_t required_number(const HttpRequest& request, const std::string& name) {
  const auto text = given(request, name);
  if (!text) fail("the request lacks \"{}\"", name);
  return whole_number(*text, name);
}

ModelOrder order_of(const ServedModels& models, const std::string& run,
                    std::optional<uint64_t> step) {
  const auto found = std::ranges::find(models.runs(), run, &ServedRun::name);
  if (found == models.runs().end()) fail("there is no run \"{}\" here", run);
  const ModelOrder order{.run = static_cast<size_t>(found - models.runs().begin()), .step = step};
  if (step && !std::ranges::count(models.steps(order.run), *step))
    fail("run \"{}\" has no checkpoint of step {}", run, *step);
  return order;
}

ModelOrder order_of(const ServedModels& models, const HttpRequest& request) {
  const auto run = given(request, "run"), step = given(request, "step");
  if (!run) fail("the request lacks \"run\"");
  return order_of(models, *run, step ? std::optional(whole_number(*step, "step")) : std::nullopt);
}

void check_routing(const loading::LoadedModel& loaded, RoutingMode routing) {
  if (routing == RoutingMode::kGreedy || loaded.config.experts.traits().balanced) return;
  fail("{} routing is for BASE layers; {} layers route greedily", experts::routing_name(routing),
       loaded.config.experts.router);
}

Json named(const ServedModels& models, const ModelOrder& order,
           const loading::LoadedModel& loaded) {
  return {{"run", models.runs()[order.run].name}, {"step", loaded.step}};
}

// Answers with what `make` gives, on the models' thread, unless nobody waits any more.
void answer_later(ServedModels& models, const ModelOrder& order, const To& to,
                  std::function<Json(const loading::LoadedModel&)> make) {
  const auto work = [&models, order, to,
                     make = std::move(make)](const loading::LoadedModel& loaded) {
    if (to->gone()) return;
    Json answer = named(models, order, loaded);
    answer.update(make(loaded));
    to->answer(json_answer(answer));
  };
  models.post(
      order, work, [to](const std::exception& error) { to->answer(refusal_of(error)); },
      [to] { return !to->gone(); });
}

struct InspectOrder {
  ModelOrder model;
  std::string text;
  RoutingMode routing = RoutingMode::kGreedy;
};

InspectOrder read_order(const ServedModels& models, const std::string& body) {
  nlohmann::json json;
  try {
    json = parse_json(body);
  } catch (const BadJson& error) {
    fail("the request is no JSON: {}", error.what());
  }
  const auto text = [&](const char* key) {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string())
      fail("the request wants \"{}\", a text", key);
    return json[key].get<std::string>();
  };
  const std::string run = text("run");
  std::optional<uint64_t> step;
  if (json.contains("step") && !json["step"].is_null()) {
    if (!json["step"].is_number_unsigned()) fail("\"step\" is not a whole number");
    step = json["step"].get<uint64_t>();
  }
  InspectOrder order{.model = order_of(models, run, step), .text = text("text")};
  order.routing = experts::parse_routing_mode(text("routing"));
  return order;
}

void answer_inspection(ServedModels& models, const HttpRequest& request, const To& to) {
  const InspectOrder order = read_order(models, request.body);
  answer_later(models, order.model, to, [order](const loading::LoadedModel& loaded) {
    check_routing(loaded, order.routing);
    const auto found =
        inference::inspect(loaded, inference::tokens_to_inspect(loaded, order.text), order.routing);
    Json answer = {{"routing", experts::routing_name(order.routing)}};
    answer.update(inspection_json(loaded, found));
    return answer;
  });
}

void answer_layers(ServedModels& models, const HttpRequest& request, const To& to) {
  const ModelOrder order = order_of(models, request);
  const auto validation = validation_of(models.runs()[order.run].path);
  answer_later(models, order, to, [validation](const loading::LoadedModel& loaded) {
    const bool fits = validation && validation->step == static_cast<int64_t>(loaded.step);
    const std::vector<std::string> names = config::layers_in_words(loaded.config);
    Json layers = Json::array();
    for (size_t i = 0; i < names.size(); ++i) {
      const experts::ExpertLayer& layer = *loaded.model->expert_layers()[i];
      const record::LayerUse* const recorded = fits ? layer_in(validation, layer.place()) : nullptr;
      layers.push_back({{"layer", layer.place()},
                        {"name", names[i]},
                        {"experts", layer.experts()},
                        {"prices", prices_json(layer)},
                        {"loads", recorded != nullptr ? Json(recorded->loads) : Json()}});
    }
    return Json{{"validated_step", validation ? Json(validation->step) : Json()},
                {"layers", layers}};
  });
}

void answer_sample(ServedModels& models, const HttpRequest& request, const To& to) {
  const ModelOrder order = order_of(models, request);
  answer_later(models, order, to,
               [run = models.runs()[order.run]](const loading::LoadedModel& loaded) {
                 try {
                   return Json{{"text", text_of_validation(run, loaded)}, {"trouble", ""}};
                 } catch (const UserError& error) {  // the page has a text of its own
                   return Json{{"text", ""}, {"trouble", error.what()}};
                 }
               });
}

void answer_expert(ServedModels& models, const std::shared_ptr<ValidationSamples>& samples,
                   const HttpRequest& request, const To& to) {
  const ModelOrder order = order_of(models, request);
  const uint64_t layer = required_number(request, "layer"),
                 expert = required_number(request, "expert");
  const fs::path run = models.runs()[order.run].path;
  // Files are read here, so that the models' thread need not wait for them.
  const auto validation = validation_of(run);
  const Json history =
      price_history(run, static_cast<int64_t>(layer), static_cast<int64_t>(expert));
  answer_later(
      models, order, to,
      [order, layer, expert, validation, history, samples](const loading::LoadedModel& loaded) {
        const auto& layers = loaded.model->expert_layers();
        const auto found = std::ranges::find(layers, static_cast<int64_t>(layer),
                                             [](const auto& one) { return one->place(); });
        if (found == layers.end()) fail("there is no layer of experts {}", layer);
        if (expert >= static_cast<uint64_t>((*found)->experts()))
          fail("layer {} has {} experts: there is no expert {}", layer, (*found)->experts(),
               expert);
        const ExpertOrder which{.layer = static_cast<size_t>(found - layers.begin()),
                                .expert = static_cast<int64_t>(expert)};
        Json answer = expert_json(loaded, which, validation, samples->of(order, loaded));
        answer["prices"] = history;
        return answer;
      });
}

}  // namespace

void add_inspector(HttpServer& server, ServedModels& models) {
  const auto samples = std::make_shared<ValidationSamples>(models);
  server.post("/api/inspect", [&models](const HttpRequest& request, const To& to) {
    answer_inspection(models, request, to);
  });
  server.get("/api/layers", [&models](const HttpRequest& request, const To& to) {
    answer_layers(models, request, to);
  });
  server.get("/api/sample", [&models](const HttpRequest& request, const To& to) {
    answer_sample(models, request, to);
  });
  server.get("/api/expert", [&models, samples](const HttpRequest& request, const To& to) {
    answer_expert(models, samples, request, to);
  });
}

}  // namespace ballast::serving
