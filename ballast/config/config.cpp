// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ballast/config/decoder_config.h"
#include "ballast/config/knobs.h"
#include "ballast/config/nearest.h"
#include "ballast/config/plain_number.h"
#include "ballast/system/error.h"
#include "ballast/system/number_from.h"
#include "ballast/system/utf8.h"

namespace ballast::config {
namespace {

template <typename T>
T parse_number(const Knob& knob, const std::string& text) {
  const std::optional<T> value = number_from<T>(text);
  if (!value) {
    fail("{}: want {}, got \"{}\"", knob.name(),
         std::is_integral_v<T> ? "a whole number" : "a number", text);
  }
  return *value;
}

// Whole numbers may be written 1_000 or 1e6 on the command line.
int64_t parse_integer(const Knob& knob, std::string text) {
  std::erase(text, '_');
  if (text.find_first_of("eE.") == std::string::npos) return parse_number<int64_t>(knob, text);
  const auto value = parse_number<double>(knob, text);
  if (value != std::floor(value) || std::abs(value) > 9e15) {
    fail("{}: want a whole number, got \"{}\"", knob.name(), text);
  }
  return static_cast<int64_t>(value);
}

void check_range(const Knob& knob, double value) {
  if (value >= knob.low && value <= knob.high) return;
  // What is too small need not be told of an end that nobody reaches.
  if (value < knob.low && knob.high >= kMany) {
    fail("{}: want a value of at least {}, got {}", knob.name(), plain_number(knob.low),
         plain_number(value));
  }
  fail("{}: want a value from {} to {}, got {}", knob.name(), plain_number(knob.low),
       plain_number(knob.high), plain_number(value));
}

void check_choice(const Knob& knob, const std::string& value) {
  if (knob.choices.empty() || std::ranges::count(knob.choices, value) > 0) return;
  fail("{}: want one of {}, got \"{}\"{}", knob.name(), fmt::join(knob.choices, ", "), value,
       nearest_is(value, knob.choices));
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

struct SetFromText {
  const Knob& knob;
  const std::string& text;

  void operator()(int64_t* target) const {
    const int64_t value = parse_integer(knob, text);
    check_range(knob, static_cast<double>(value));
    *target = value;
  }
  void operator()(double* target) const {
    const double value =
        knob.is_duration ? parse_duration(knob.name(), text) : parse_number<double>(knob, text);
    check_range(knob, value);
    *target = value + 0.0;  // never -0: written to a file it would be read as the integer 0
  }
  void operator()(bool* target) const {
    if (text != "true" && text != "false")
      fail("{}: want true or false, got \"{}\"", knob.name(), text);
    *target = text == "true";
  }
  void operator()(std::string* target) const {
    check_choice(knob, text);
    *target = text;
  }
  void operator()(std::vector<std::string>* target) const { *target = split_list(text); }
  void operator()(const Knob::Choice& target) const {
    check_choice(knob, text);
    target.set(static_cast<size_t>(std::ranges::find(knob.choices, text) - knob.choices.begin()));
  }
};

}  // namespace

void set_knob(Config& config, const std::string& key, const std::string& value) {
  set_knob(knobs(config), key, value);
}

void set_knob(const std::vector<Knob>& all, const std::string& key, const std::string& value) {
  if (replace_invalid_utf8(value) != value) fail("{}: want UTF-8 text", key);
  const auto knob = std::ranges::find_if(all, [&](const Knob& k) { return k.is_named(key); });
  if (knob != all.end()) return std::visit(SetFromText{*knob, value}, knob->target);
  std::vector<std::string> names;
  for (const Knob& other : all) names.push_back(other.name());
  fail("there is no knob \"{}\"{} (`ballast train --help` lists them all)", key,
       nearest_is(key, names, "\"{}\""));
}

namespace {

// Knobs that another router would silently ignore.
void check_router(const ExpertsConfig& experts) {
  const auto is_for = [&](bool used, const char* knob, const char* router) {
    if (used)
      fail("experts.{} is for experts.router {}, which is {}", knob, router, experts.router);
  };
  if (experts.traits().balanced) return;
  is_for(experts.test_routing == TestRouting::kPriced, "test_routing: priced", "base");
  is_for(experts.solver != TrainingSolver::kExact, "solver", "base");
  is_for(experts.self_check, "self_check", "base");
  is_for(experts.second_expert == SecondExpert::kRandom && experts.experts_of_token() == 1,
         "second_expert", "sparsely_gated");
}

void check_weights(const ExpertsConfig& experts) {
  if (!experts.traits().balanced && experts.traits().experts_of_token == 1 &&
      experts.experts_of_token() > 1) {
    fail("experts.per_token: switch has one expert a token; sparsely_gated has as many as wanted");
  }
  if (!experts.renormalise && (experts.gate != Gate::kSoftmax || experts.experts_of_token() == 1)) {
    fail("experts.renormalise: false is for experts.gate softmax and several experts of a token");
  }
  if (experts.norm == ExpertNorm::kLayer &&
      (experts.placement != Placement::kReplace || experts.sublayers_of_layer() != 1)) {
    fail("experts.norm: layer is for experts.placement replace and one sublayer");
  }
}

void check_experts(const ExpertsConfig& experts, int64_t blocks) {
  if (experts.layers == 0 && experts.router != ExpertsConfig().router) {
    fail("experts.router is {}, but there are no layers of experts: give experts.layers",
         experts.router);
  }
  if (experts.layers == 0) return;
  check_router(experts);
  check_weights(experts);
  if (experts.experts_of_token() > experts.count) {
    fail("experts.per_token: {} different experts of a token, but experts.count is {}",
         experts.experts_of_token(), experts.count);
  }
  if (experts.chunks > 1 && experts.hops > 1)
    fail("experts.chunks: tokens travel in chunks or in two hops, not both; want experts.hops 1");
  if (experts.placement == Placement::kTop && experts.layers > 1)
    fail("experts.placement: top is for one layer, and experts.layers is {}", experts.layers);
  if (experts.layers > blocks) {
    fail("experts.layers: {} layers of experts do not fit between {} blocks; want at most {}",
         experts.layers, blocks, blocks);
  }
  if (experts.sublayers_of_layer() == 0) {
    fail(
        "experts.size: the sublayers of a {} expert do not suffice for {} layers; give "
        "experts.sublayers",
        name_of(experts.size), experts.layers);
  }
  if (experts.capacity < 0 && experts.capacity != -1) {
    fail("experts.capacity: want a factor, 0 (no limit) or -1 (the paper's), got {}",
         experts.capacity);
  }
}

}  // namespace

namespace {

// "1 head", "4 heads"
std::string counted(int64_t count, const char* one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

// Why so many shards cannot hold the model; empty: they can.
std::string trouble_of_shards(const ModelConfig& model, int64_t shards) {
  const std::string among = fmt::format("among {}", counted(shards, "worker"));
  if (model.kv_heads() % shards != 0) {
    const bool are_all = model.kv_heads() == model.heads;
    return fmt::format("model.heads{}: {} cannot be divided {}", are_all ? "" : "_kv",
                       counted(model.kv_heads(), "head"), among);
  }
  if (model.feed_forward_width() % shards != 0) {
    return fmt::format("model.hidden: {} of a feed-forward cannot be divided {}",
                       counted(model.feed_forward_width(), "column"), among);
  }
  // The last part of a vocabulary may be smaller; none may be empty.
  const int64_t vocabulary = model.vocabulary, part = (vocabulary + shards - 1) / shards;
  if (vocabulary > 0 && part * (shards - 1) >= vocabulary) {
    return fmt::format("model.vocabulary: {} are too few for {}", counted(vocabulary, "token"),
                       counted(shards, "worker"));
  }
  return "";
}

}  // namespace

void check_model_parallel(const Config& config, int64_t workers) {
  const int64_t shards = config.training.model_parallel;
  const std::string trouble = workers % shards == 0
                                  ? trouble_of_shards(config.model, shards)
                                  : fmt::format("{} cannot be divided into groups of {}",
                                                counted(workers, "worker"), shards);
  if (trouble.empty()) return;
  std::vector<int64_t> fitting;
  for (int64_t number = 1; number <= std::min(workers, config.model.heads); ++number) {
    if (workers % number == 0 && trouble_of_shards(config.model, number).empty())
      fitting.push_back(number);
  }
  fail("--model-parallel (training.model_parallel): {}; with {} {} would do", trouble,
       counted(workers, "worker"), fmt::join(fitting, ", "));
}

namespace {

// Numbers of workers that divide everything there is to divide.
std::vector<int64_t> fitting_workers(const Config& config) {
  const ExpertsConfig& e = config.experts;
  const int64_t rows = config.training.batch / config.training.micro_steps;
  std::vector<int64_t> fitting;
  for (int64_t replicas = 1; replicas <= rows; ++replicas) {
    const int64_t workers = replicas * config.training.model_parallel;
    const bool experts_fit =
        e.layers == 0 || (e.count % workers == 0 && e.groups % workers == 0);  // 0 % x is 0
    if (rows % replicas == 0 && experts_fit) fitting.push_back(workers);
  }
  return fitting;
}

// "with this config 1, 2, 4 would do"
std::string advice_on_workers(const Config& config) {
  const std::vector<int64_t> fitting = fitting_workers(config);
  if (!fitting.empty())
    return fmt::format("with this config {} would do", fmt::join(fitting, ", "));
  Config undivided = config;
  undivided.training.model_parallel = 1;
  return fmt::format("with --model-parallel 1 {} would do",
                     fmt::join(fitting_workers(undivided), ", "));
}

}  // namespace

void check_workers(const Config& config, int64_t workers) {
  check_model_parallel(config, workers);
  const int64_t rows = config.training.batch / config.training.micro_steps;
  const std::string advice = advice_on_workers(config);
  const auto check = [&](const char* knob, const char* what, int64_t count, int64_t parts) {
    if (count % parts != 0)
      fail("{}: {} {} cannot be divided among {} {}; {}", knob, count, what, parts,
           parts == workers ? "workers" : "replicas", advice);
  };
  check("training.batch", "sequences of a micro-step", rows,
        workers / config.training.model_parallel);
  if (config.experts.layers == 0) return;
  check("experts.count", "experts", config.experts.count, workers);
  if (config.experts.groups == 0) return;
  check("experts.groups (fixed when a run starts)", "routing groups", config.experts.groups,
        workers);
  if (rows * config.model.context % config.experts.groups != 0) {
    fail("experts.groups: {} routing groups do not divide the {} x {} tokens of a micro-step",
         config.experts.groups, rows, config.model.context);
  }
}

namespace {

// Far below where whole numbers overflow that count parameters and operations.
constexpr double kMostParameters = 1e15;

void check_countable(const ModelConfig& m, const ExpertsConfig& e) {
  const auto d = static_cast<double>(m.width), f = static_cast<double>(m.feed_forward_width());
  const double feed_forwards =
      static_cast<double>(m.layers) +
      static_cast<double>(e.layers * e.sublayers_of_layer()) * static_cast<double>(e.count);
  const double parameters =
      static_cast<double>((m.tied ? 1 : 2) * m.vocabulary + m.context) * d +
      static_cast<double>(m.layers) * 2 * d * static_cast<double>(m.query_width() + m.kv_width()) +
      feed_forwards * (m.is_gated() ? 3 : 2) * d * f;
  if (parameters <= kMostParameters) return;
  fail(
      "model.width, model.layers, experts.count: together they make a model of {:.0e} parameters; "
      "want at most {:.0e}",
      parameters, kMostParameters);
}

}  // namespace

void check_ranges(const Config& config) {
  Config copy = config;
  for (const Knob& knob : knobs(copy)) {
    if (auto* const* whole = std::get_if<int64_t*>(&knob.target))
      check_range(knob, static_cast<double>(**whole));
    if (auto* const* number = std::get_if<double*>(&knob.target)) check_range(knob, **number);
  }
}

void check_config(const Config& config) {
  const ModelConfig& m = config.model;
  check_decoder(m);
  check_experts(config.experts, m.layers);
  check_countable(m, config.experts);
  const TrainingConfig& t = config.training;
  if (t.batch % t.micro_steps != 0) {
    fail("training.batch: {} sequences do not divide into {} micro-steps", t.batch, t.micro_steps);
  }
  if (config.data.train.empty())
    fail("data.train: name at least one source (builtin, or a folder made by `ballast prepare`)");
}

namespace {

std::string value_text(const Knob& knob) {
  return std::visit(
      [&](const auto& value) -> std::string {
        if constexpr (requires { value.get(); }) {
          return knob.choices[value.get()];
        } else if constexpr (requires { value->begin()->size(); }) {
          return fmt::format("[{}]", fmt::join(*value, ", "));
        } else {
          return fmt::format("{}", *value);
        }
      },
      knob.target);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> knob_values(const Config& config) {
  Config copy = config;
  std::vector<std::pair<std::string, std::string>> values;
  for (const Knob& knob : knobs(copy)) values.emplace_back(knob.name(), value_text(knob));
  return values;
}

std::vector<std::string> differences(const Config& before, const Config& after, Compare compare) {
  Config a = before, b = after;
  const auto left = knobs(a), right = knobs(b);
  std::vector<std::string> lines;
  for (size_t i = 0; i < left.size(); ++i) {
    if (compare == Compare::kWhatIsComputed && left[i].is_operational) continue;
    const std::string from = value_text(left[i]), to = value_text(right[i]);
    if (from != to) lines.push_back(fmt::format("{}: {} -> {}", left[i].name(), from, to));
  }
  return lines;
}

double parse_duration(const std::string& name, const std::string& text) {
  double value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  const std::string unit(end, last);
  const double scale = unit.empty() || unit == "s" ? 1
                       : unit == "m"               ? 60
                       : unit == "h"               ? 3600
                       : unit == "d"               ? 86400
                                                   : 0;
  if (error != std::errc() || scale == 0 || !(value >= 0)) {
    fail("{}: want a time such as 90, 90s, 10m, 2h or 1d, got \"{}\"", name, text);
  }
  return value * scale;
}

}  // namespace ballast::config
