// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/experts/routing.h"
#include "ballast/model/device.h"
#include "ballast/system/error.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/kernel_peers.h"
#include "cli/bench/median.h"
#include "cli/bench/number_list.h"
#include "cli/bench/options.h"
#include "cli/command.h"
#include "cli/place_options.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
Kernels that are bound by memory. Each takes turns with the same in libtorch's own operations, as
one would write it in PyTorch, in the dtype models are trained in here. Times are medians, on a GPU
the device's own. Kernels with a gradient run forward and backward, and add to the gradients of
weights. Bytes are those that must be read and written. So GB/s, beside the rate of the memory, tell
how much is left to gain.

Kernels
  adam           one update of vocabulary x width parameters, which also clears their gradient
  gradient_norm  the norm of as many numbers (libtorch's in one pass, beside its single operations)
  cross_entropy  losses and gradients of up to 8192 rows of logits
  layer_norm, embedding (words and positions, frequent words and rare ones), expert_gate,
  spread_rows (rows in another order)

Examples
  ballast bench kernels
  ballast bench kernels --size 16384,2048,51200,32 --device cuda --json

JSON keys (--json): device, dtype, threads, rounds, tokens, width, vocabulary, experts, kernels, a
  list of {name, bytes, kernel_ms, kernel_fastest_ms, plain_ms, plain_fastest_ms, gb_per_s (of the
  kernel, by its median), speedup (plain / kernel)}.
)";

struct Options {
  std::string size;
  BenchOptions bench = {};
};

KernelSizes parse_size(const std::string& text) {
  const auto numbers = parse_numbers({"--size", "tokens,width,vocabulary,experts"}, text);
  for (const int64_t number : numbers) {
    if (number < 1) fail("--size: want numbers of at least 1, got \"{}\"", text);
  }
  if (numbers[3] > numbers[0])
    fail("--size: want as many tokens as experts or more, got \"{}\"", text);
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

// Gives a GPU something to do, so that the host has queued what is timed before it begins.
class HeadStart {
 public:
  explicit HeadStart(at::Device device) {
    if (!device.is_cpu())
      matrix_ = at::randn({8192, 8192}, at::device(device).dtype(at::kBFloat16));
  }
  void give() const {
    for (int i = 0; matrix_.defined() && i < 2; ++i) at::mm(matrix_, matrix_);
  }

 private:
  at::Tensor matrix_;
};

Json measure(const KernelPeers& peers, const HeadStart& start, at::Device device, int64_t rounds) {
  const auto seconds_of = [&](const std::function<void()>& work) {
    peers.prepare();
    start.give();
    step::DeviceTimer timer;
    timer.begin(device);
    work();
    timer.end();
    return timer.take_seconds();
  };
  constexpr int64_t kWarmUp = 3;
  std::vector<double> kernel, plain;
  for (int64_t round = 0; round < kWarmUp + rounds; ++round) {
    const double own = seconds_of(peers.kernel), other = seconds_of(peers.plain);
    if (round < kWarmUp) continue;
    kernel.push_back(own);
    plain.push_back(other);
  }
  return {{"name", peers.name},
          {"bytes", static_cast<int64_t>(peers.bytes)},
          {"kernel_ms", 1e3 * median(kernel)},
          {"kernel_fastest_ms", 1e3 * *std::ranges::min_element(kernel)},
          {"plain_ms", 1e3 * median(plain)},
          {"plain_fastest_ms", 1e3 * *std::ranges::min_element(plain)},
          {"gb_per_s", 1e-9 * peers.bytes / median(kernel)},
          {"speedup", median(plain) / median(kernel)}};
}

std::string line_of(const Json& row) {
  return fmt::format(
      "{:<14} {:9.3f} ms | libtorch {:9.3f} ms | {:5.2f}x | {:9.1f} MB, {:7.1f} GB/s",
      row["name"].get<std::string>(), row["kernel_ms"].get<double>(), row["plain_ms"].get<double>(),
      row["speedup"].get<double>(), 1e-6 * row["bytes"].get<double>(),
      row["gb_per_s"].get<double>());
}

int run(const Options& options) {
  const bool is_chosen = !options.size.empty();
  KernelSizes sizes = parse_size(is_chosen ? options.size : "2048,256,8192,8");
  const model::ComputePlace place = options.bench.choose_place();
  if (!is_chosen && !place.device.is_cpu()) sizes = parse_size("16384,1024,50304,8");
  const HeadStart start(place.device);
  Json rows = Json::array();
  for (const auto& make : kernel_peers(sizes, place)) {
    rows.push_back(measure(make(), start, place.device, options.bench.rounds));
    print_row(options.bench, line_of(rows.back()));
  }
  if (options.bench.json) {
    const Json out = {{"device", place.device.str()},
                      {"dtype", c10::toString(place.working)},
                      {"threads", at::get_num_threads()},
                      {"rounds", options.bench.rounds},
                      {"tokens", sizes.tokens},
                      {"width", sizes.width},
                      {"vocabulary", sizes.vocabulary},
                      {"experts", sizes.experts},
                      {"kernels", rows}};
    fmt::print("{}\n", out.dump(2));
  }
  return 0;
}

}  // namespace

void add_bench_kernels(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "kernels", "Kernels bound by memory, beside libtorch's own operations", kFooter);
  command
      ->add_option("--size", options->size,
                   "tokens,width,vocabulary,experts; default: by device, as in training")
      ->type_name("T,D,V,E");
  add_device_option(*command, options->bench.device);
  add_bench_options(*command, options->bench);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
