// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "ballast/record/run_directory.h"
#include "ballast/studio/serving/completions.h"
#include "ballast/studio/serving/http_server.h"
#include "ballast/studio/serving/inspector_api.h"
#include "ballast/studio/serving/live_api.h"
#include "ballast/studio/serving/run_list.h"
#include "ballast/studio/serving/served_models.h"
#include "ballast/studio/serving/site_files.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/stop_signal.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/place_options.h"

namespace ballast::cli {
namespace {

constexpr const char* kExamples = R"(
Examples
  ballast serve runs/mine
  Two runs side by side, at a port that is free:
    ballast serve runs/base runs/dense --port 0
  What clients of OpenAI's completions ask (docs/serve.md has all parameters):
    curl http://127.0.0.1:8080/v1/completions -d '{"model": "mine", "prompt": "Once"}'
  From another machine, through a tunnel and without opening a port to others:
    ssh -L 8080:127.0.0.1:8080 machine

The address is printed on stdout when all is ready. There: / the inspector, /live the runs as they
  train, /v1 the models for programs. A run is called by the last part of its path.
A run that trains is served with its newest checkpoint; before there is one, it can be watched only.
Ctrl-C ends the server.
)";

struct Options {
  std::vector<std::string> runs;
  ModelOptions model;
  std::string routing;
  serving::ServerOptions server;
  int64_t port = 8080, rows = 64;
  bool watch = false;
};

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

// The newest checkpoint of each run, unless it trains and has none yet.
void load_all(serving::ServedModels& models, const StopSignal& signal) {
  for (size_t i = 0; i < models.runs().size() && !signal.requested(); ++i) {
    const serving::ServedRun& run = models.runs()[i];
    if (models.steps(i).empty() && record::RunDirectory::is_run(run.path) &&
        record::RunDirectory::in_use(run.path)) {
      log_info("{} has no checkpoint yet: it can be watched, and asked when there is one",
               run.path.string());
      continue;
    }
    models.load({.run = i});
    log_info("{} is loaded, as \"{}\"", run.path.string(), run.name);
  }
}

// Until a signal asks to stop.
void wait_for_stop() {
  const int never = ::eventfd(0, EFD_CLOEXEC);
  wait_for_input(never);
  ::close(never);
}

std::string url_of(const serving::ServerOptions& options, uint16_t port) {
  if (options.address.find(':') == std::string::npos)
    return fmt::format("http://{}:{}/", options.address, port);
  return fmt::format("http://[{}]:{}/", options.address, port);
}

serving::ModelsOptions models_options(const Options& options) {
  serving::ModelsOptions out;
  out.how.device = options.model.device;
  out.how.precision = options.model.precision;
  out.how.tokenizer = options.model.tokenizer;
  if (options.model.average) out.how.weights = loading::Weights::kAverage;
  out.routing = [wish = options.routing](const loading::LoadedModel& loaded) {
    return choose_routing(loaded, wish);
  };
  out.rows = options.rows;
  return out;
}

int run(const Options& options) {
  if (comm::num_started_workers() > 1)
    fail("serve is one process: start it without mpirun or srun");
  if (options.watch) ::setpriority(PRIO_PROCESS, 0, 19);  // and so all threads that it starts
  const StopSignal signal;
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  serving::ServerOptions where = options.server;
  where.port = static_cast<uint16_t>(options.port);
  serving::ServedModels models(serving::name_runs(options.runs), models_options(options), *world);
  serving::HttpServer server(where);  // a taken port is told before models are loaded
  if (!options.watch) load_all(models, signal);
  if (signal.requested()) return 0;
  serving::add_site(server);
  serving::add_completions(server, models);
  serving::add_run_list(server, models);
  serving::add_inspector(server, models);
  serving::add_live_api(server, models.runs());
  if (!is_loopback(where.address)) {
    log_warning(
        "--address {}: everyone who reaches this machine can use the models and look into "
        "the runs; no password protects them",
        where.address);
  }
  server.start();
  fmt::print("{}\n", url_of(where, server.port()));
  if (std::fflush(stdout) == 0) wait_for_stop();  // else nobody knows where it is
  server.stop();
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "serve", "Look into models, watch runs, and let programs ask", kExamples);
  command->add_option("RUN", options->runs, "run directories, checkpoints, or exported models")
      ->required();
  command->add_option("--port", options->port, "where to listen; 0: any port that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      ->add_option("--address", options->server.address,
                   "of this machine to listen at; 0.0.0.0: all, for everyone who reaches it")
      ->capture_default_str();
  command
      ->add_option("--host-name", options->server.hosts,
                   "a name by which others reach the server; may be given several times")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command->add_flag("--watch", options->watch,
                    "for runs that are about to train: they need not be there yet, models are "
                    "loaded only when they are asked for, and others go first (docs/live.md)");
  add_number(*command, "--rows", options->rows, "texts of a model that are written side by side")
      ->capture_default_str();
  command
      ->add_option("--routing", options->routing,
                   "how tokens of a BASE model find their experts: the best by score, or less the "
                   "prices of training; default: the run's experts.test_routing")
      ->check(CLI::IsMember({"greedy", "priced"}));
  add_device_option(*command, options->model.device);
  add_choice(*command, "--precision", options->model.precision, "auto: fp32 on cpu, bf16 on cuda");
  add_path(*command, "--tokenizer", options->model.tokenizer, "PATH",
           "use this tokenizer instead of the runs' own");
  add_average_option(*command, options->model.average);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
