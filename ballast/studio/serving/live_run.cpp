// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/live_run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "ballast/checkpoint/step_folders.h"
#include "ballast/config/system_words.h"
#include "ballast/record/json_fields.h"
#include "ballast/record/run_directory.h"
#include "ballast/system/json.h"

namespace ballast::serving {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr uint64_t kLargestText = 1 << 20;  // of config.toml and run.json
constexpr uint64_t kSampleBytes = 1 << 16;  // of samples.txt, from its end
constexpr size_t kSamples = 8;

int64_t now() { return static_cast<int64_t>(std::time(nullptr)); }

double age_of(const FileMark& mark) {
  std::timespec time{};
  std::timespec_get(&time, TIME_UTC);
  const double passed = static_cast<double>(time.tv_sec - mark.changed_ns / 1'000'000'000) +
                        1e-9 * static_cast<double>(time.tv_nsec - mark.changed_ns % 1'000'000'000);
  return std::max(0.0, passed);
}

// "2026-11-17T19:40:12Z"; 0: something else.
int64_t parse_time(const std::string& text) {
  std::tm time{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  return end != nullptr && *end == '\0' ? static_cast<int64_t>(::timegm(&time)) : 0;
}

std::string own_hostname() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Whether that has changed since; if so, what it is now is noted.
bool has_changed(std::optional<FileMark>& known, const fs::path& path) {
  const std::optional<FileMark> mark = mark_of(path);
  if (mark == known) return false;
  known = mark;
  return true;
}

template <typename Point, typename Value>
json column(const std::vector<Point>& points, uint64_t behind, Value Point::*value) {
  json values = json::array();
  for (auto point = std::ranges::upper_bound(points, behind, {}, &Point::end);
       point != points.end(); ++point)
    values.push_back((*point).*value);
  return values;
}

json points_json(const std::vector<LivePoint>& points, uint64_t behind) {
  return {{"step", column(points, behind, &LivePoint::step)},
          {"loss", column(points, behind, &LivePoint::loss)},
          {"tokens_per_second", column(points, behind, &LivePoint::tokens_per_second)},
          {"assign_seconds", column(points, behind, &LivePoint::assign_seconds)},
          {"greedy_share", column(points, behind, &LivePoint::greedy_share)},
          {"dropped_share", column(points, behind, &LivePoint::dropped_share)}};
}

json validations_json(const std::vector<LiveValidation>& validations) {
  return {{"step", column(validations, 0, &LiveValidation::step)},
          {"loss", column(validations, 0, &LiveValidation::loss)},
          {"perplexity", column(validations, 0, &LiveValidation::perplexity)},
          {"tokens", column(validations, 0, &LiveValidation::tokens)},
          {"floor", column(validations, 0, &LiveValidation::floor)},
          {"busiest_share", column(validations, 0, &LiveValidation::busiest_share)}};
}

}  // namespace

LiveRun::LiveRun(fs::path folder, uint64_t life)
    : folder_(std::move(folder)), metrics_(folder_ / "metrics.jsonl", life) {}

// A run that starts makes its folder, then the lock, then all else: asked the other way round, it
// is never missed.
bool LiveRun::may_be_run() const {
  std::error_code none;
  return !fs::exists(folder_, none) || fs::is_empty(folder_, none) ||
         fs::exists(folder_ / "lock", none) || fs::exists(folder_ / "run.json", none);
}

void LiveRun::read_config() {
  if (!has_changed(config_mark_, folder_ / "config.toml")) return;
  plan_ = {};
  const RunFile file(folder_ / "config.toml");
  if (!file.is_there()) return;
  try {
    config::Config config;
    config::read_recorded_config(config, file.read(0, kLargestText), "config.toml");
    plan_ = {config.training.steps, config.training.max_time, config::system_in_words(config)};
  } catch (const std::exception&) {  // of a newer program, or damaged: nothing is known then
  }
}

void LiveRun::read_record() {
  if (!has_changed(record_mark_, folder_ / "run.json")) return;
  start_ = {};
  const RunFile file(folder_ / "run.json");
  if (!file.is_there()) return;
  const json record = parse_json_or_discard(file.read(0, kLargestText));
  const json& starts = record::list_in(record, "starts");
  if (starts.empty()) return;
  const json& hardware = record::field_in(starts.back(), "hardware");
  start_ = {parse_time(record::text_in(starts.back(), "time")),
            record::text_in(hardware, "hostname") == own_hostname()};
}

void LiveRun::read_samples() {
  if (!has_changed(samples_mark_, folder_ / "samples.txt")) return;
  ++samples_.number;
  samples_.newest.clear();
  const RunFile file(folder_ / "samples.txt");
  if (!file.is_there()) return;
  const uint64_t from = file.mark().size - std::min(file.mark().size, kSampleBytes);
  samples_.newest = record::read_samples(file.read(from, kSampleBytes));
  if (samples_.newest.size() > kSamples)
    samples_.newest.erase(samples_.newest.begin(), samples_.newest.end() - kSamples);
}

void LiveRun::read_checkpoints() {
  if (!has_changed(checkpoints_mark_, folder_ / "checkpoints")) return;
  checkpoint_.reset();
  try {
    const auto folders = checkpoint::list_step_folders(folder_ / "checkpoints");
    if (!folders.empty()) checkpoint_ = folders.back().step;
  } catch (const std::exception&) {  // it may not be read
  }
}

void LiveRun::refresh() {
  read_config();
  read_record();
  read_samples();
  read_checkpoints();
  metrics_.refresh();
}

// A lock of another machine is not seen here; there the time of the last line tells.
std::string LiveRun::state() const {
  constexpr double kLongSilence = 60, kLongStep = 10;
  const int64_t step = metrics_.points().empty() ? 0 : metrics_.points().back().step;
  const double patience = std::fmax(kLongSilence, kLongStep * metrics_.step_seconds());
  const bool trains = record::RunDirectory::in_use(folder_) ||
                      (!start_.is_here && metrics_.mark() && age_of(*metrics_.mark()) < patience &&
                       (plan_.steps == 0 || step < plan_.steps));
  if (trains) return step > 0 ? "training" : "starting";
  if (step == 0) return "waiting";
  return plan_.steps > 0 && step >= plan_.steps ? "ended" : "stopped";
}

double LiveRun::seconds_left() const {
  if (metrics_.points().empty() || plan_.steps == 0) return record::kUnknown;
  const int64_t steps = plan_.steps - metrics_.points().back().step;
  const double left = static_cast<double>(std::max<int64_t>(0, steps)) * metrics_.step_seconds();
  if (!(plan_.max_time > 0) || start_.time == 0) return left;
  return std::min(left, std::max(0.0, static_cast<double>(start_.time - now()) + plan_.max_time));
}

json LiveRun::brief() const {
  const LivePoint* last = metrics_.points().empty() ? nullptr : &metrics_.points().back();
  return {{"state", state()},
          {"step", last != nullptr ? last->step : 0},
          {"steps", plan_.steps > 0 ? json(plan_.steps) : json()}};
}

json LiveRun::summary() {
  const std::lock_guard guard(mutex_);
  refresh();
  return brief();
}

json LiveRun::news(const KnownOfRun& known) {
  const std::lock_guard guard(mutex_);
  refresh();
  const bool anew = known.life != metrics_.life();
  const LivePoint* last = metrics_.points().empty() ? nullptr : &metrics_.points().back();
  json news = brief();
  news["system"] = plan_.system;
  news["life"] = metrics_.life();
  news["anew"] = anew;
  news["end"] = metrics_.end();
  news["behind"] = metrics_.is_behind();
  news["silent_seconds"] = metrics_.mark() ? json(age_of(*metrics_.mark())) : json();
  news["tokens"] = last != nullptr ? last->tokens : record::kUnknown;
  news["seconds"] = last != nullptr ? last->seconds : record::kUnknown;
  news["step_seconds"] = metrics_.step_seconds();
  news["seconds_left"] = seconds_left();
  news["checkpoint"] = checkpoint_ ? json(*checkpoint_) : json();
  news["points"] = points_json(metrics_.points(), anew ? 0 : known.end);
  news["validations_seen"] = metrics_.validations_seen();
  if (anew || known.validations != metrics_.validations_seen())
    news["validations"] = validations_json(metrics_.validations());
  news["samples_seen"] = samples_.number;
  if (anew || known.samples != samples_.number) {
    json& list = news["samples"] = json::array();
    for (const record::Sample& sample : samples_.newest)
      list.push_back({{"step", sample.step}, {"text", sample.text}});
  }
  return news;
}

}  // namespace ballast::serving
