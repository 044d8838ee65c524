// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/step_twin.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "ballast/model/model_size.h"
#include "ballast/system/error.h"
#include "ballast/system/json.h"
#include "ballast/system/log.h"
#include "cli/bench/median.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

// Why there is none of such a model; empty: there is.
std::string why_no_twin(const config::Config& config) {
  const config::ExpertsConfig& experts = config.experts;
  if (experts.layers == 0) return "";
  if (experts.groups != 1) return fmt::format("it has one routing group, not {}", experts.groups);
  const int64_t tokens = config.training.batch * config.model.context;
  if (tokens % experts.count == 0) return "";
  return fmt::format("its experts divide the tokens; {} do not divide {}", experts.count, tokens);
}

}  // namespace

StepTwin::StepTwin(const config::Config& config, const model::ComputePlace& place,
                   const BenchOptions& options, const TwinOptions& twin)
    : config_(config) {
  if (const std::string reason = why_no_twin(config); !twin.no_twin && !reason.empty()) {
    if (twin.is_asked_for()) fail("--experts: no twin in PyTorch: {}", reason);
    log_warning("no twin in PyTorch: {}", reason);
    return;
  }
  const bool is_dense = config.experts.layers == 0;
  const Json arguments = {{"vocabulary", config.model.vocabulary},
                          {"width", config.model.width},
                          {"layers", config.model.layers},
                          {"heads", config.model.heads},
                          {"context", config.model.context},
                          {"batch", config.training.batch},
                          {"hidden", config.model.feed_forward_width()},
                          {"decoder", config.model.positions == config::Positions::kLearned
                                          ? "paper"
                                          : config::name_of(config.model.activation)},
                          {"experts", is_dense ? 0 : config.experts.count},
                          {"sublayers", is_dense ? 0 : config.experts.sublayers_of_layer()},
                          {"threads", options.num_threads()},
                          {"device", place.device.is_cpu() ? "cpu" : "cuda"},
                          {"mode", twin.mode()}};
  twin_ = start_twin(twin, "step_twin.py", arguments.dump());
  TORCH_CHECK(twin_.process == nullptr || twin_.parameters == model::model_size(config).total,
              "step_twin.py has ", twin_.parameters, " parameters, our model has ",
              model::model_size(config).total);
}

void StepTwin::take_turn(int64_t steps) {
  if (twin_.process == nullptr) return;
  twin_.process->write_line(std::to_string(steps));
  const auto times = parse_json(twin_.process->read_line());
  if (is_warm_) {
    for (const double seconds : times["seconds"]) steps_.push_back(seconds);
    for (const double seconds : times["assign_seconds"]) assignments_.push_back(seconds);
  }
  is_warm_ = true;
}

const std::string& StepTwin::version() const { return twin_.version; }

void StepTwin::add_to(Json& row, double seconds) const {
  const bool is_there = !steps_.empty();
  const double other = is_there ? median(steps_) : 0;
  const auto tokens = static_cast<double>(config_.training.batch * config_.model.context);
  row["twin_step_ms"] = is_there ? Json(1e3 * other) : Json();
  row["twin_tokens_per_second"] = is_there ? Json(tokens / other) : Json();
  row["speedup"] = is_there ? Json(other / seconds) : Json();
  if (config_.experts.layers > 0)
    row["twin_assign_ms"] = is_there ? Json(1e3 * median(assignments_)) : Json();
}

}  // namespace ballast::cli
