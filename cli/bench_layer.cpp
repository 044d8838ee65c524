// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/comm/world.h"
#include "ballast/model/device.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/parallel.h"
#include "cli/at_least.h"
#include "cli/commands.h"
#include "cli/layer_contenders.h"
#include "cli/median.h"
#include "cli/number_list.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
One BASE layer in training, forward and backward, beside a dense stack that computes as much: as many
residual sublayers (LayerNorm, D -> 4D, ReLU, 4D -> D), all tokens through the same one. The two and
the layer taken apart run in turns, so that a busy machine meets all alike; times are medians. Tokens
are of clusters of unequal size; each turn has other ones. One worker holds all experts.

Parts of the layer, forward and backward
  shuffle    drawing the random order
  assign     affinities, balanced assignment, where each token goes
  exchange   moving rows: shuffle, to the experts, and back
  experts    their sublayers
  gate       the sigmoid gate and the sum

Examples
  ballast bench layer
  ballast bench layer --size 4096,256,8,2 --size 16384,512,32,4 --rounds 31
  ballast bench layer --device cuda --json

JSON keys (--json): device, threads, rounds, groups, shuffle, sizes, a list of {tokens, width,
  experts, sublayers, gflops (of the sublayers, a pass), layer_ms, layer_fastest_ms, dense_ms,
  dense_fastest_ms, ratio (layer / dense), parts_ms, shares (of the sum of parts)}.
)";

struct Options {
  std::vector<std::string> sizes;
  std::string device = "auto";
  int64_t threads = 0, rounds = 15, groups = 1;
  bool no_shuffle = false, json = false;
};

constexpr const char* kSizesOfCpu[] = {"4096,256,8,2", "4096,256,1,2", "4096,256,32,2"};
constexpr const char* kSizesOfGpu[] = {"16384,2048,8,2", "16384,2048,1,2", "16384,2048,32,2"};

struct Size {
  int64_t tokens = 0;
  Config config = {};
};

Size parse_size(const Options& options, const std::string& text) {
  const auto numbers = parse_numbers({"--size", "tokens,width,experts,sublayers"}, text);
  if (numbers[0] < 1) fail("--size: want at least 1 token, got \"{}\"", text);
  if (numbers[3] < 1) fail("--size: want at least 1 sublayer, got \"{}\"", text);
  Size size{.tokens = numbers[0]};
  set_knob(size.config, "model.heads", "1");
  set_knob(size.config, "model.width", std::to_string(numbers[1]));
  set_knob(size.config, "experts.layers", "1");
  set_knob(size.config, "experts.count", std::to_string(numbers[2]));
  set_knob(size.config, "experts.sublayers", std::to_string(numbers[3]));
  set_knob(size.config, "experts.groups", std::to_string(options.groups));
  size.config.experts.shuffle = !options.no_shuffle;
  check_config(size.config);
  if (size.tokens % options.groups != 0)
    fail("--groups: {} groups do not divide {} tokens", options.groups, size.tokens);
  return size;
}

// Tokens of clusters, some of which are much larger than others.
LayerPass make_pass(const Size& size, const ComputePlace& place, const at::Tensor& centres,
                    uint64_t step) {
  const auto draw_clusters = [&] {
    return at::randint(centres.size(0), {size.tokens}, at::device(place.device).dtype(at::kLong));
  };
  const at::Tensor of_clusters =
      centres.index_select(0, at::minimum(draw_clusters(), draw_clusters()));
  const at::Tensor tokens = of_clusters + at::randn_like(of_clusters);
  return {tokens.to(place.working), at::randn_like(tokens).to(place.working), step};
}

Json to_json(const Size& size, const std::vector<double>& layer, const std::vector<double>& dense,
             const std::map<std::string, std::vector<double>>& parts) {
  const ExpertsConfig& experts = size.config.experts;
  const int64_t weights = experts.sublayers_of_layer() * 2 * size.config.model.width *
                          size.config.model.feed_forward_width();
  Json parts_ms = Json::object(), shares = Json::object();
  double sum = 0;
  for (const std::string& part : LayerInParts::parts()) {
    parts_ms[part] = 1e3 * median(parts.at(part));
    sum += parts_ms[part].get<double>();
  }
  for (const auto& [part, milliseconds] : parts_ms.items())
    shares[part] = milliseconds.get<double>() / sum;
  return {{"tokens", size.tokens},
          {"width", size.config.model.width},
          {"experts", experts.count},
          {"sublayers", experts.sublayers_of_layer()},
          {"gflops", 6e-9 * static_cast<double>(weights * size.tokens)},
          {"layer_ms", 1e3 * median(layer)},
          {"layer_fastest_ms", 1e3 * std::ranges::min(layer)},
          {"dense_ms", 1e3 * median(dense)},
          {"dense_fastest_ms", 1e3 * std::ranges::min(dense)},
          {"ratio", median(layer) / median(dense)},
          {"parts_ms", parts_ms},
          {"shares", shares}};
}

Json measure(const Options& options, const Size& size, const ComputePlace& place) {
  const auto world = open_world({.kind = WorldKind::kSingle});
  WholeLayer layer(size.config, place, world->everyone());
  DenseStack dense(size.config, place);
  LayerInParts apart(size.config, place, world->everyone());
  const at::Tensor centres = at::randn({64, size.config.model.width}, at::device(place.device));
  std::vector<double> of_layer, of_dense;
  std::map<std::string, std::vector<double>> of_parts;
  constexpr int64_t kWarmUp = 2;
  for (int64_t round = 0; round < kWarmUp + options.rounds; ++round) {
    const LayerPass pass = make_pass(size, place, centres, static_cast<uint64_t>(round));
    const double layer_seconds = layer.run(pass), dense_seconds = dense.run(pass);
    const auto parts = apart.run(pass);
    if (round < kWarmUp) continue;
    of_layer.push_back(layer_seconds);
    of_dense.push_back(dense_seconds);
    for (const auto& [part, seconds] : parts) of_parts[part].push_back(seconds);
  }
  return to_json(size, of_layer, of_dense, of_parts);
}

std::string line_of(const Json& row) {
  std::string shares;
  for (const auto& [part, share] : row["shares"].items())
    shares +=
        fmt::format("{}{} {:.1f} %", shares.empty() ? "" : ", ", part, 100 * share.get<double>());
  return fmt::format("T={} D={} E={} sublayers={} | {:.2f} ms | dense {:.2f} ms | {:.3f}x | {}",
                     row["tokens"].get<int64_t>(), row["width"].get<int64_t>(),
                     row["experts"].get<int64_t>(), row["sublayers"].get<int64_t>(),
                     row["layer_ms"].get<double>(), row["dense_ms"].get<double>(),
                     row["ratio"].get<double>(), shares);
}

int run(const Options& options) {
  std::vector<Size> sizes;
  for (const std::string& text : options.sizes) sizes.push_back(parse_size(options, text));
  const ComputePlace place = choose_place({.device = options.device, .threads = options.threads});
  if (sizes.empty()) {
    for (const char* text : place.device.is_cpu() ? kSizesOfCpu : kSizesOfGpu)
      sizes.push_back(parse_size(options, text));
  }
  Json rows = Json::array();
  for (const Size& size : sizes) {
    rows.push_back(measure(options, size, place));
    const std::string line = line_of(rows.back());
    options.json ? log_line(line) : fmt::print("{}\n", line);
    std::fflush(stdout);
  }
  if (options.json) {
    const Json out = {
        {"device", place.device.str()},
        {"threads", options.threads > 0 ? static_cast<size_t>(options.threads) : num_cores()},
        {"rounds", options.rounds},
        {"groups", options.groups},
        {"shuffle", !options.no_shuffle},
        {"sizes", rows}};
    fmt::print("{}\n", out.dump(2));
  }
  return 0;
}

}  // namespace

void add_bench_layer(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      bench.add_subcommand("layer", "A BASE layer, beside a dense stack that computes as much");
  command->footer(kFooter);
  command
      ->add_option("--size", options->sizes,
                   "tokens,width,experts,sublayers; default: three, of 1, 8 and 32 experts")
      ->type_name("T,D,E,N");
  command->add_option("--device", options->device, "where to compute")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str()
      ->type_name("NAME");
  command->add_option("--threads", options->threads, "CPU threads; 0: all cores")
      ->check(at_least(0))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--rounds", options->rounds, "turns each takes")
      ->check(at_least(1))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--groups", options->groups, "routing groups; must divide the tokens")
      ->check(at_least(1))
      ->capture_default_str()
      ->type_name("G");
  command->add_flag("--no-shuffle", options->no_shuffle, "tokens are assigned where they stand");
  command->add_flag("--json", options->json, "print the result as one JSON object on stdout");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
