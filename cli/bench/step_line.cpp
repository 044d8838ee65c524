// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/step_line.h"

#include <fmt/format.h>

#include "ballast/system/progress.h"

namespace ballast::cli {

using Json = nlohmann::ordered_json;

std::string step_line(const Json& row, const std::string& mode, const std::string& twin_version) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  const auto whole = [&](const char* key) { return row[key].get<int64_t>(); };
  std::string beside;
  if (row.contains("experts")) {
    const Json& dense = row["dense"];
    beside = fmt::format(
        " | E={} sublayers={} groups={}, {} FLOP a token | dense of hidden {}, {} FLOP a token: "
        "{:.2f} ms | {:.3f}x, a FLOP {:.3f}x | optimizer {:.2f} and {:.2f} ms; {:.3f} of dense's "
        "tok/s "
        "without what it takes more | assignment {:.1f} %, messages {:.1f} %",
        whole("experts"), whole("sublayers"), whole("groups"),
        format_count(number(row["flops_per_token"])), dense["hidden"].get<int64_t>(),
        format_count(number(dense["flops_per_token"])), number(dense["step_ms"]),
        number(row["ratio"]), number(row["ratio_per_flop"]), number(row["optimizer_ms"]),
        number(dense["optimizer_ms"]), number(row["of_dense_but_optimizer"]),
        100 * number(row["assign_share"]), 100 * number(row["exchange_share"]));
  }
  if (!row["speedup"].is_null()) {
    beside += fmt::format(" | PyTorch {} {} {:.2f} ms | {:.2f}x", mode, twin_version,
                          number(row["twin_step_ms"]), number(row["speedup"]));
    if (row.contains("twin_assign_ms"))
      beside += fmt::format(", its assignment {:.2f} ms", number(row["twin_assign_ms"]));
  }
  return fmt::format(
      "V={} D={} L={} H={} S={} B={} | {:.2f} ms a step | {:.0f} tok/s | {:.0f} GFLOP/s{}",
      whole("vocabulary"), whole("width"), whole("layers"), whole("heads"), whole("context"),
      whole("batch"), number(row["step_ms"]), number(row["tokens_per_second"]),
      number(row["gflops_per_second"]), beside);
}

}  // namespace ballast::cli
