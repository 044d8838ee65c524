// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ballast/comm/world.h"
#include "ballast/config/router_traits.h"
#include "ballast/model/device.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/layer_contenders.h"
#include "cli/bench/median.h"
#include "cli/bench/number_list.h"
#include "cli/bench/options.h"
#include "cli/bench/twin_process.h"
#include "cli/command.h"
#include "cli/place_options.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
One layer of experts in training, forward and backward, beside a dense stack that computes as much.
The stack has as many residual sublayers (LayerNorm, D -> 4D, ReLU, 4D -> D). All tokens go through
the same ones, twice where tokens have two experts. The contenders run in turns, so that a busy
machine slows all alike. Times are medians. Tokens come in clusters of unequal size; each turn has
other tokens. One worker holds all experts.
"assigned" is the layer with a known assignment. Its gradients are added to those that are there,
as the dense stack's are; "written": those of the matrices are written over them.
Layers without a capacity also run beside the same in plain PyTorch (benchmarks/twin/layer_twin.py).
Gates run there on grouped_mm, with the same gate and tokens; BASE on bmm, with a known assignment
and gradients written. The twin has one LayerNorm for all experts and no biases: with those of each
expert its gradients would take several times as long.

Parts of the layer, forward and backward, as training tells them
  assignment  affinities, balanced assignment, where each token goes; a gate
  experts     their sublayers; rows in another order, to them and back

Examples
  ballast bench layer
  ballast bench layer --size 4096,256,8,2 --size 16384,512,32,4 --rounds 31
  ballast bench layer --router switch --capacity 1.25
  ballast bench layer --router sparsely_gated --size 16384,1024,128,1 --device cuda --mode compile
  ballast bench layer --device cuda --size 16384,1024,8,1 --size 16384,1024,128,1 --json

JSON keys (--json): device, threads, rounds, groups, shuffle, router, capacity (null: none),
  clusters, twin (PyTorch version, null: none), mode, sizes, a list of {tokens, width, experts,
  sublayers, experts_of_token, gflops (of the sublayers, a pass), weights_mb (the experts'
  matrices), layer_ms, layer_fastest_ms, assigned_ms, assigned_written_ms (with a known assignment,
  gradients added and written), dense_ms, dense_fastest_ms, ratio (layer / dense), twin_ms,
  twin_fastest_ms, speedup (twin / layer; for BASE twin / assigned_written), busiest (rows of the
  busiest expert / mean of all), parts_ms, shares (of the sum of parts)}.
)";

struct Options {
  std::vector<std::string> sizes;
  std::string router = "base", capacity = "0";
  int64_t groups = 1, clusters = 64;
  bool no_shuffle = false;
  BenchOptions bench = {};
  TwinOptions twin = {};
};

constexpr const char* kSizesOfCpu[] = {"4096,256,8,2", "4096,256,1,2", "4096,256,32,2"};
constexpr const char* kSizesOfGpu[] = {"16384,2048,8,2", "16384,2048,1,2", "16384,2048,32,2"};

struct Size {
  int64_t tokens = 0;
  config::Config config = {};
};

Size parse_size(const Options& options, const std::string& text) {
  const auto numbers = parse_numbers({"--size", "tokens,width,experts,sublayers"}, text);
  if (numbers[0] < 1) fail("--size: want at least 1 token, got \"{}\"", text);
  if (numbers[3] < 1) fail("--size: want at least 1 sublayer, got \"{}\"", text);
  Size size{.tokens = numbers[0]};
  config::set_knob(size.config, "model.heads", "1");
  config::set_knob(size.config, "model.width", std::to_string(numbers[1]));
  config::set_knob(size.config, "experts.layers", "1");
  config::set_knob(size.config, "experts.count", std::to_string(numbers[2]));
  config::set_knob(size.config, "experts.sublayers", std::to_string(numbers[3]));
  config::set_knob(size.config, "experts.groups", std::to_string(options.groups));
  config::set_knob(size.config, "experts.router", options.router);
  config::set_knob(size.config, "experts.capacity", options.capacity);
  config::take_papers_frame(size.config.experts);  // the twin's
  size.config.experts.shuffle = !options.no_shuffle;
  config::check_config(size.config);
  if (size.tokens % options.groups != 0)
    fail("--groups: {} groups do not divide {} tokens", options.groups, size.tokens);
  return size;
}

// Tokens of clusters, some of which are much larger than others.
class PassSource {
 public:
  PassSource(const Options& options, const Size& size, const model::ComputePlace& place)
      : place_(place), shape_({size.tokens, size.config.model.width}) {
    if (options.clusters > 0)
      centres_ = at::randn({options.clusters, shape_[1]}, at::device(place.device));
  }
  LayerPass draw(int64_t step) const {
    at::Tensor tokens = at::randn(shape_, at::device(place_.device));
    if (centres_.defined())
      tokens += centres_.index_select(0, at::minimum(draw_clusters(), draw_clusters()));
    return {tokens.to(place_.working), at::randn_like(tokens).to(place_.working),
            static_cast<uint64_t>(step)};
  }

 private:
  at::Tensor draw_clusters() const {
    return at::randint(centres_.size(0), {shape_[0]}, at::device(place_.device).dtype(at::kLong));
  }
  const model::ComputePlace& place_;
  const std::vector<int64_t> shape_;
  at::Tensor centres_;
};

// The layer in PyTorch, on the same passes, which it reads from a file.
class LayerTwin {
 public:
  LayerTwin(const Options& options, const Size& size, const model::ComputePlace& place,
            const at::Tensor& gate, const PassSource& source) {
    const fs::path inputs = folder_.path() / "inputs";
    std::ofstream file(inputs, std::ios::binary);
    const auto write = [&](const at::Tensor& x) {
      const at::Tensor here = x.cpu().contiguous();
      file.write(static_cast<const char*>(here.const_data_ptr()),
                 static_cast<std::streamsize>(here.nbytes()));
    };
    write(gate);
    for (int64_t i = 0; i < kPasses; ++i) {
      passes_.push_back(source.draw(i));
      write(passes_.back().tokens);
      write(passes_.back().gradient);
    }
    file.close();
    if (!file) fail("cannot write {}", inputs.string());
    const Json arguments = {{"tokens", size.tokens},
                            {"width", size.config.model.width},
                            {"hidden", size.config.model.feed_forward_width()},
                            {"router", options.router},
                            {"experts", size.config.experts.count},
                            {"experts_of_token", size.config.experts.experts_of_token()},
                            {"sublayers", size.config.experts.sublayers_of_layer()},
                            {"passes", kPasses},
                            {"threads", options.bench.num_threads()},
                            {"device", place.device.is_cpu() ? "cpu" : "cuda"},
                            {"mode", options.twin.mode()},
                            {"inputs", inputs.string()}};
    twin_ = start_twin(options.twin, "layer_twin.py", arguments.dump());
  }

  bool is_there() const { return twin_.process != nullptr; }
  const std::string& version() const { return twin_.version; }
  LayerPass pass(int64_t round) const {
    LayerPass pass = passes_[static_cast<size_t>(round % kPasses)];
    pass.step = static_cast<uint64_t>(round);
    return pass;
  }
  double run(int64_t round) {  // seconds
    twin_.process->write_line(std::to_string(round % kPasses));
    return parse_json(twin_.process->read_line()).get<double>();
  }

 private:
  static constexpr int64_t kPasses = 4;
  TemporaryFolder folder_;
  std::vector<LayerPass> passes_;
  Twin twin_;
};

struct Measured {
  std::vector<double> layer, assigned, written, dense, twin, busiest;  // seconds of rounds; loads
  std::map<std::string, std::vector<double>> parts;
  double weights_mb = 0;
  std::string twin_version;
};

Json to_json(const Size& size, const Measured& found) {
  const config::ExpertsConfig& experts = size.config.experts;
  const int64_t weights = experts.experts_of_token() * experts.sublayers_of_layer() * 2 *
                          size.config.model.width * size.config.model.feed_forward_width();
  Json parts_ms = Json::object(), shares = Json::object();
  double sum = 0;
  for (const auto& [part, seconds] : found.parts) {
    parts_ms[part] = 1e3 * median(seconds);
    sum += parts_ms[part].get<double>();
  }
  for (const auto& [part, milliseconds] : parts_ms.items())
    shares[part] = milliseconds.get<double>() / sum;
  Json row = {{"tokens", size.tokens},
              {"width", size.config.model.width},
              {"experts", experts.count},
              {"sublayers", experts.sublayers_of_layer()},
              {"experts_of_token", experts.experts_of_token()},
              {"gflops", 6e-9 * static_cast<double>(weights * size.tokens)},
              {"weights_mb", found.weights_mb},
              {"layer_ms", 1e3 * median(found.layer)},
              {"layer_fastest_ms", 1e3 * std::ranges::min(found.layer)},
              {"assigned_ms", 1e3 * median(found.assigned)},
              {"assigned_written_ms", 1e3 * median(found.written)},
              {"dense_ms", 1e3 * median(found.dense)},
              {"dense_fastest_ms", 1e3 * std::ranges::min(found.dense)},
              {"ratio", median(found.layer) / median(found.dense)},
              {"twin_ms", nullptr},
              {"twin_fastest_ms", nullptr},
              {"speedup", nullptr},
              {"busiest", median(found.busiest)},
              {"parts_ms", parts_ms},
              {"shares", shares}};
  if (!found.twin.empty()) {
    row["twin_ms"] = 1e3 * median(found.twin);
    row["twin_fastest_ms"] = 1e3 * std::ranges::min(found.twin);
    row["speedup"] =
        median(found.twin) / median(experts.traits().balanced ? found.written : found.layer);
  }
  return row;
}

Measured measure(const Options& options, const Size& size, const model::ComputePlace& place) {
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  MeasuredLayer layer(size.config, place, world->everyone());
  DenseStack dense(size.config, place);
  const PassSource source(options, size, place);
  std::optional<LayerTwin> twin;
  const config::ExpertsConfig& experts = size.config.experts;
  if ((experts.traits().balanced || experts.training_capacity() == 0) && !options.twin.no_twin) {
    twin.emplace(options, size, place, layer.gate(), source);
    if (!twin->is_there()) twin.reset();
  }
  Measured found;
  found.weights_mb =
      1e-6 * static_cast<double>(experts.count * experts.sublayers_of_layer() * 2 *
                                 size.config.model.width * size.config.model.feed_forward_width() *
                                 static_cast<int64_t>(elementSize(place.working)));
  if (twin) found.twin_version = twin->version();
  constexpr int64_t kWarmUp = 4;
  for (int64_t round = 0; round < kWarmUp + options.bench.rounds; ++round) {
    const LayerPass pass = twin ? twin->pass(round) : source.draw(round);
    const double layer_seconds = layer.run(pass), dense_seconds = dense.run(pass);
    const auto [assigned, busiest] = layer.run_assigned(pass, experts::MatrixGradients::kAdded);
    const double written = layer.run_assigned(pass, experts::MatrixGradients::kWritten).seconds;
    const double twin_seconds = twin ? twin->run(round) : 0;
    const auto parts = layer.run_in_parts(pass);
    if (round < kWarmUp) continue;
    found.layer.push_back(layer_seconds);
    found.assigned.push_back(assigned);
    found.written.push_back(written);
    found.dense.push_back(dense_seconds);
    if (twin) found.twin.push_back(twin_seconds);
    found.busiest.push_back(busiest);
    for (const auto& [part, seconds] : parts) found.parts[part].push_back(seconds);
  }
  return found;
}

std::string line_of(const Json& row) {
  std::string shares;
  for (const auto& [part, share] : row["shares"].items())
    shares +=
        fmt::format("{}{} {:.1f} %", shares.empty() ? "" : ", ", part, 100 * share.get<double>());
  std::string beside;
  if (!row["speedup"].is_null()) {
    beside = fmt::format(" | PyTorch {:.2f} ms | {:.2f}x", row["twin_ms"].get<double>(),
                         row["speedup"].get<double>());
  }
  return fmt::format(
      "T={} D={} E={} sublayers={} | {:.2f} ms | assigned {:.2f}, written {:.2f} ms | dense {:.2f} "
      "ms "
      "| {:.3f}x{} | busiest {:.2f} | {}",
      row["tokens"].get<int64_t>(), row["width"].get<int64_t>(), row["experts"].get<int64_t>(),
      row["sublayers"].get<int64_t>(), row["layer_ms"].get<double>(),
      row["assigned_ms"].get<double>(), row["assigned_written_ms"].get<double>(),
      row["dense_ms"].get<double>(), row["ratio"].get<double>(), beside,
      row["busiest"].get<double>(), shares);
}

int run(const Options& options) {
  std::vector<Size> sizes;
  for (const std::string& text : options.sizes) sizes.push_back(parse_size(options, text));
  const model::ComputePlace place = options.bench.choose_place();
  if (sizes.empty()) {
    for (const char* text : place.device.is_cpu() ? kSizesOfCpu : kSizesOfGpu)
      sizes.push_back(parse_size(options, text));
  }
  Json rows = Json::array();
  std::string twin_version;
  for (const Size& size : sizes) {
    const Measured found = measure(options, size, place);
    twin_version = found.twin_version;
    rows.push_back(to_json(size, found));
    print_row(options.bench, line_of(rows.back()));
  }
  if (options.bench.json) {
    const config::ExpertsConfig& experts = sizes.front().config.experts;
    const double capacity = experts.traits().balanced ? 0 : experts.training_capacity();
    const Json out = {
        {"device", place.device.str()},
        {"threads", options.bench.num_threads()},
        {"rounds", options.bench.rounds},
        {"groups", options.groups},
        {"shuffle", options.router == "base" && !options.no_shuffle && options.groups > 1},
        {"router", options.router},
        {"capacity", capacity > 0 ? Json(capacity) : Json()},
        {"clusters", options.clusters},
        {"twin", twin_version.empty() ? Json() : Json(twin_version)},
        {"mode", options.twin.mode()},
        {"sizes", rows}};
    fmt::print("{}\n", out.dump(2));
  }
  return 0;
}

}  // namespace

void add_bench_layer(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "layer", "A layer of experts, beside a dense stack that computes as much", kFooter);
  command
      ->add_option("--size", options->sizes,
                   "tokens,width,experts,sublayers; default: three, of 1, 8 and 32 experts")
      ->type_name("T,D,E,N");
  add_device_option(*command, options->bench.device);
  add_bench_options(*command, options->bench);
  add_number(*command, "--groups", options->groups, "routing groups; must divide the tokens", 1,
             "G")
      ->capture_default_str();
  command->add_option("--router", options->router, "how tokens find their experts")
      ->check(CLI::IsMember(config::router_names()))
      ->capture_default_str();
  command
      ->add_option("--capacity", options->capacity,
                   "of an expert of a gated layer, as a factor of its share; 0: no limit; -1: the "
                   "paper's")
      ->capture_default_str()
      ->type_name("C");
  add_number(*command, "--clusters", options->clusters, "of tokens; 0: they are alike", 0)
      ->capture_default_str();
  add_twin_options(*command, options->twin);
  command->add_flag("--no-shuffle", options->no_shuffle, "tokens are assigned where they stand");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
