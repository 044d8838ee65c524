// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/live_api.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "ballast/studio/serving/live_run.h"
#include "ballast/system/number_from.h"

namespace ballast::serving {
namespace {

using nlohmann::json;

struct WatchedRun {
  std::string name;
  LiveRun run;
};
using WatchedRuns = std::vector<std::unique_ptr<WatchedRun>>;

// A number of the query; 0 where there is none, which no answer has given to a page.
uint64_t number_in(const HttpRequest& request, const char* name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? 0 : number_from<uint64_t>(found->second).value_or(0);
}

HttpResponse to_response(const json& answer) {
  // Samples and names may be no UTF-8.
  return {.body = answer.dump(-1, ' ', false, json::error_handler_t::replace)};
}

HttpResponse list_of(const WatchedRuns& runs) {
  json list = json::array();
  for (const auto& watched : runs) {
    if (!watched->run.may_be_run()) continue;
    json entry = watched->run.summary();
    entry["name"] = watched->name;
    list.push_back(std::move(entry));
  }
  return to_response({{"runs", std::move(list)}});
}

HttpResponse answer_to(const HttpRequest& request, const WatchedRuns& runs) {
  const auto name = request.query.find("run");
  if (name == request.query.end()) return list_of(runs);
  for (const auto& watched : runs) {
    if (watched->name != name->second || !watched->run.may_be_run()) continue;
    return to_response(watched->run.news({.life = number_in(request, "life"),
                                          .end = number_in(request, "from"),
                                          .validations = number_in(request, "validations"),
                                          .samples = number_in(request, "samples")}));
  }
  return refusal(404, fmt::format("there is no run \"{}\" here", name->second));
}

}  // namespace

void add_live_api(HttpServer& server, const std::vector<ServedRun>& runs) {
  auto watched = std::make_shared<WatchedRuns>();
  std::random_device random;
  for (const ServedRun& run : runs) {
    // Lives are told apart over servers too: a page may outlive one. JavaScript counts to 2^53.
    const uint64_t life = (uint64_t{random()} << 16) + 1;
    watched->push_back(std::unique_ptr<WatchedRun>(new WatchedRun{run.name, {run.path, life}}));
  }
  server.get("/api/live",
             [watched](const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
               responder->answer(answer_to(request, *watched));
             });
}

}  // namespace ballast::serving
