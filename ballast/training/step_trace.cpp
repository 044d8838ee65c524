// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/step_trace.h"

#include <c10/util/ApproximateClock.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include "ballast/system/file.h"
#include "ballast/system/json.h"

namespace ballast::training {
namespace {

namespace profiler = torch::autograd::profiler;
using nlohmann::json;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;
using Span = StepTrace::Span;

// More than any process's number, and than a GPU's, which the profiler takes for one.
constexpr int64_t kProcess = 100'000'000;
constexpr int64_t kPartsTrack = 1, kGpuTrack = 2;

std::set<ActivityType> activities_on(at::Device device) {
  if (device.is_cpu()) return {ActivityType::CPU};
  return {ActivityType::CPU, ActivityType::CUDA};
}

// The clock of the profiler's events.
int64_t now() { return c10::getTime(); }

json named(const char* what, int64_t track, const json& arguments) {
  return {{"ph", "M"}, {"name", what}, {"pid", kProcess}, {"tid", track}, {"args", arguments}};
}

// The file's times are microseconds since a moment that it names.
double microseconds(int64_t time, int64_t base) { return static_cast<double>(time - base) / 1e3; }

json event_of(const Span& span, const char* kind, int64_t track, int64_t base) {
  return {{"ph", "X"},
          {"cat", kind},
          {"name", span.name},
          {"pid", kProcess},
          {"tid", track},
          {"ts", microseconds(span.begin, base)},
          {"dur", static_cast<double>(span.end - span.begin) / 1e3}};
}

std::string_view category_of(const json& event) {
  const auto found = event.find("cat");
  return found == event.end() ? std::string_view() : found->get_ref<const std::string&>();
}

std::optional<int64_t> correlation_of(const json& event) {
  const auto arguments = event.find("args");
  if (arguments == event.end()) return std::nullopt;
  const auto found = arguments->find("correlation");
  if (found == arguments->end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

struct Interval {
  double begin = std::numeric_limits<double>::infinity(), end = 0;  // microseconds
};

// When the GPU was at work on each part: on what was started while the host was in it.
std::vector<Interval> on_gpu(const json& events, const std::vector<Span>& parts, int64_t base) {
  std::unordered_map<int64_t, double> started;
  for (const json& event : events) {
    const std::string_view kind = category_of(event);
    if (kind != "cuda_runtime" && kind != "cuda_driver") continue;
    if (const auto id = correlation_of(event)) started[*id] = event.at("ts").get<double>();
  }
  std::vector<Interval> intervals(parts.size());
  for (const json& event : events) {
    const std::string_view kind = category_of(event);
    if (kind != "kernel" && kind != "gpu_memcpy" && kind != "gpu_memset") continue;
    const auto id = correlation_of(event);
    const auto start = id ? started.find(*id) : started.end();
    if (start == started.end()) continue;
    const auto after = std::ranges::upper_bound(
        parts, start->second, {}, [&](const Span& part) { return microseconds(part.begin, base); });
    if (after == parts.begin()) continue;
    const auto index = static_cast<size_t>(after - parts.begin()) - 1;
    if (start->second > microseconds(parts[index].end, base)) continue;
    const double begin = event.at("ts").get<double>();
    intervals[index].begin = std::min(intervals[index].begin, begin);
    intervals[index].end = std::max(intervals[index].end, begin + event.at("dur").get<double>());
  }
  return intervals;
}

json gpu_events(const json& events, const std::vector<Span>& parts, int64_t base) {
  const std::vector<Interval> intervals = on_gpu(events, parts, base);
  json added = json::array();
  double free_from = 0;  // a track shows one range at a time
  for (size_t i = 0; i < parts.size(); ++i) {
    const double begin = std::max(intervals[i].begin, free_from);
    if (begin >= intervals[i].end) continue;
    free_from = intervals[i].end;
    json event = event_of(parts[i], "part_on_gpu", kGpuTrack, base);
    event["ts"] = begin;
    event["dur"] = intervals[i].end - begin;
    added.push_back(std::move(event));
  }
  return added;
}

}  // namespace

StepTrace::StepTrace(at::Device device) : device_(device) {
  const ProfilerConfig config(ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities_on(device));
  profiler::enableProfiler(config, activities_on(device));
}

StepTrace::~StepTrace() {
  if (is_recording_) profiler::disableProfiler();
}

void StepTrace::begin_step(int64_t step) {
  switch_to(step::StepPart::kOther);
  steps_.push_back({fmt::format("step {}", step), now(), 0});
  is_in_step_ = true;
}

void StepTrace::end_step() {
  TORCH_CHECK(is_in_step_, "StepTrace: a step ends that was not begun");
  switch_to(step::StepPart::kOther);
  steps_.back().end = now();
  is_in_step_ = false;
}

void StepTrace::switched(step::StepPart part) {
  const int64_t time = now();
  end_part(time);
  if (!is_in_step_ || part == step::StepPart::kOther) return;
  parts_.push_back({std::string(step::part_name(part)), time, 0});
  open_ = part;
}

void StepTrace::end_part(int64_t time) {
  if (open_ != step::StepPart::kOther) parts_.back().end = time;
  open_ = step::StepPart::kOther;
}

void StepTrace::save(const fs::path& path) {
  const auto result = profiler::disableProfiler();
  is_recording_ = false;
  // libtorch writes to any name, so it gets one in a folder that nobody else knows.
  const TemporaryFolder folder(fs::absolute(path).parent_path());
  const fs::path raw = folder.path() / "trace.json";
  result->save(raw.string());
  json trace = parse_json(read_text(raw), RepeatedKeys::kLastCounts);
  trace["traceName"] = path.string();
  const int64_t base = trace.value("baseTimeNanoseconds", int64_t{0});
  json& events = trace.at("traceEvents");
  const json of_gpu = device_.is_cpu() ? json::array() : gpu_events(events, parts_, base);
  events.push_back(named("process_name", kPartsTrack, {{"name", "Ballast"}}));
  events.push_back(named("process_sort_index", kPartsTrack, {{"sort_index", -1}}));
  events.push_back(named("thread_name", kPartsTrack, {{"name", "parts"}}));
  for (const Span& step : steps_) events.push_back(event_of(step, "step", kPartsTrack, base));
  for (const Span& part : parts_) events.push_back(event_of(part, "part", kPartsTrack, base));
  if (!of_gpu.empty())
    events.push_back(named("thread_name", kGpuTrack, {{"name", "parts on the GPU"}}));
  for (const json& event : of_gpu) events.push_back(event);
  write_text_atomically(path, trace.dump());
}

}  // namespace ballast::training
