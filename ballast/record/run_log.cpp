// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/run_log.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "ballast/system/json.h"
#include "ballast/system/log.h"
#include "ballast/system/number_from.h"

namespace ballast::record {
namespace {

using nlohmann::json;

constexpr std::string_view kHeadingStart = "== step ", kHeadingEnd = " ==";

std::optional<uint64_t> step_of(const json& record) {
  if (!record.is_object()) return {};
  const auto step = record.find("step");
  if (step == record.end() || !step->is_number_integer() || *step < 0) return {};
  return step->get<uint64_t>();
}

// The step of a heading line of samples.txt, or nothing for other lines.
std::optional<uint64_t> heading_step(std::string_view line) {
  if (!line.starts_with(kHeadingStart) || !line.ends_with(kHeadingEnd)) return {};
  if (line.size() < kHeadingStart.size() + kHeadingEnd.size()) return {};
  line.remove_prefix(kHeadingStart.size());
  line.remove_suffix(kHeadingEnd.size());
  return number_from<uint64_t>(line);
}

const fs::path& cut_metrics(const fs::path& path, uint64_t first_step) {
  size_t damaged = 0;
  keep_lines(path, [&](std::string_view line) {
    const auto step = step_of(parse_json_or_discard(line));
    damaged += !step;
    return step && *step < first_step;
  });
  if (damaged != 0) log_warning("removed {} damaged lines from {}", damaged, path.string());
  return path;
}

const fs::path& cut_samples(const fs::path& path, uint64_t first_step) {
  bool keep = true;
  keep_lines(path, [&](std::string_view line) {
    if (const auto step = heading_step(line)) keep = *step < first_step;
    return keep;
  });
  return path;
}

}  // namespace

MetricsLog::MetricsLog(const fs::path& path, uint64_t first_step)
    : file_(cut_metrics(path, first_step)) {}

void MetricsLog::append(const json& record) {
  if (!step_of(record)) throw std::invalid_argument("a metrics record without a step");
  file_.append(record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

std::vector<Sample> read_samples(std::string_view text) {
  constexpr std::string_view kIndent = "  ";
  std::vector<Sample> samples;
  for (const std::string_view line : whole_lines(text)) {
    if (const auto step = heading_step(line)) {
      samples.push_back({.step = *step});
    } else if (!samples.empty()) {
      samples.back().text += line.substr(line.starts_with(kIndent) ? kIndent.size() : 0);
      samples.back().text += '\n';
    }
  }
  for (Sample& sample : samples) {
    while (sample.text.ends_with('\n')) sample.text.pop_back();
  }
  return samples;
}

SampleLog::SampleLog(const fs::path& path, uint64_t first_step)
    : file_(cut_samples(path, first_step)) {}

void SampleLog::append(uint64_t step, std::string_view text) {
  std::string record = fmt::format("{}{}{}\n  ", kHeadingStart, step, kHeadingEnd);
  for (const char c : text) {
    record += c;
    if (c == '\n') record += "  ";
  }
  file_.append(record + "\n\n");
}

}  // namespace ballast::record
