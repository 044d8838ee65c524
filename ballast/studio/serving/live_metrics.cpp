// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/live_metrics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ballast/record/json_fields.h"
#include "ballast/system/checksum.h"
#include "ballast/system/json.h"

namespace ballast::serving {
namespace {

using nlohmann::json;

constexpr uint64_t kMiB = 1 << 20;
// More than this at once is a past, of which samples will do; its end is read whole.
constexpr uint64_t kPast = 2 * kMiB, kWholeEnd = kMiB / 2;
constexpr uint64_t kPiece = kMiB;          // parsed by one refresh()
constexpr uint64_t kSearched = 64 * kMiB;  // searched for validations by one refresh()
constexpr uint64_t kLongestLine = kMiB;
constexpr int kSamples = 1500;  // of a past
constexpr size_t kNewest = 50, kMostValidations = 1000;
constexpr std::string_view kValidation = "valid_loss\"";  // a search for a quote would halt often

uint64_t bytes_before(const RunFile& file, uint64_t end) {
  constexpr uint64_t kBytes = 64;
  const uint64_t from = end - std::min(end, kBytes);
  return checksum(file.read(from, end - from));
}

double mean_of(const json& layers, const char* key) {
  double sum = 0;
  for (const json& layer : layers) sum += record::number_in(layer, key);
  return layers.empty() ? record::kUnknown : sum / static_cast<double>(layers.size());
}

LivePoint point_of(const json& record, uint64_t end) {
  const json& layers = record::list_in(record, "layers");
  return {.end = end,
          .step = record::count_in(record, "step"),
          .loss = record::number_in(record, "loss"),
          .tokens = record::number_in(record, "tokens"),
          .seconds = record::number_in(record, "seconds"),
          .tokens_per_second = record::number_in(record, "tokens_per_second"),
          .assign_seconds = mean_of(layers, "assign_seconds") * static_cast<double>(layers.size()),
          .greedy_share = mean_of(layers, "greedy_share"),
          .dropped_share = mean_of(layers, "dropped_share")};
}

LiveValidation validation_of(const json& record, uint64_t end) {
  double busiest = record::kUnknown;
  for (const json& layer : record::list_in(record, "experts"))
    busiest = std::fmax(busiest, record::number_in(layer, "busiest_share"));
  return {.end = end,
          .step = record::count_in(record, "step"),
          .loss = record::number_in(record, "valid_loss"),
          .perplexity = record::number_in(record, "valid_perplexity"),
          .tokens = record::number_in(record, "valid_tokens"),
          .floor = record::number_in(record, "valid_floor"),
          .busiest_share = busiest};
}

// Where there are more than `most`, keeps about `few` of them, evenly over the bytes of the file,
// and the newest.
template <typename Point>
void thin(std::vector<Point>& points, size_t most, size_t few) {
  if (points.size() <= most) return;
  const uint64_t first = points.front().end, bytes = points.back().end - first;
  std::vector<Point> kept;
  for (const Point& point : points) {
    const auto place = static_cast<double>(point.end - first) / static_cast<double>(bytes);
    if (kept.empty() || point.end == points.back().end ||
        place * static_cast<double>(few) >= static_cast<double>(kept.size()))
      kept.push_back(point);
  }
  points = std::move(kept);
}

struct FoundLine {
  std::string text;
  uint64_t end = 0;  // the byte behind it
};

// The first whole line that begins there or later.
std::optional<FoundLine> line_at(const RunFile& file, uint64_t offset) {
  constexpr uint64_t kUsual = 4096;
  const uint64_t from = offset - std::min<uint64_t>(offset, 1);
  for (const uint64_t size : {kUsual, 2 * kLongestLine}) {
    const std::string text = file.read(from, size);
    const size_t before = offset == 0 ? 0 : text.find('\n') + 1;
    if (offset > 0 && before == 0) continue;
    const size_t end = text.find('\n', before);
    if (end != text.npos) return FoundLine{text.substr(before, end - before), from + end + 1};
  }
  return {};
}

}  // namespace

void LiveMetrics::start_anew() {
  ++life_;
  end_ = last_bytes_ = 0;
  behind_ = false;
  unsearched_.clear();
  points_.clear();
  newest_.clear();
  validations_.clear();
  ++validations_seen_;
}

// A file of the same name may be another one, and one of the same number, too: what stands before
// the place up to which we know it tells. Each line has times in it that no other has.
bool LiveMetrics::is_continued(const RunFile& file) const {
  return mark_ && file.mark().is_same_file(*mark_) && file.mark().size >= end_ &&
         bytes_before(file, end_) == last_bytes_;
}

void LiveMetrics::refresh() {
  if (mark_of(file_) == mark_ && !behind_) return;
  const RunFile file(file_);
  if (mark_ && !is_continued(file)) start_anew();
  if (!file.is_there()) {
    mark_.reset();
    return;
  }
  mark_ = file.mark();
  if (mark_->size - end_ > kPast) end_ = read_past(file, mark_->size - kWholeEnd);
  const bool all = read_new(file);
  search_validations(file);
  behind_ = !all || !unsearched_.empty();
  thin(points_, kMostPoints, kFewPoints);
  thin(validations_, kMostValidations, kMostValidations / 2);
  last_bytes_ = bytes_before(file, end_);
}

// Parses lines that lie evenly between end_ and `to`. Returns where the line after them begins.
uint64_t LiveMetrics::read_past(const RunFile& file, uint64_t to) {
  const uint64_t from = end_;
  const double stride = static_cast<double>(to - from) / kSamples;
  uint64_t begin = from;
  for (int i = 0; i <= kSamples; ++i) {
    const uint64_t wanted = from + static_cast<uint64_t>(stride * i);
    if (wanted < begin) continue;
    const std::optional<FoundLine> line = line_at(file, wanted);
    if (!line) continue;
    begin = line->end;
    if (line->text.find(kValidation) == line->text.npos) take(line->text, begin);
  }
  unsearched_.push_back({from, begin});
  newest_.clear();
  return begin;
}

// False: there is more.
bool LiveMetrics::read_new(const RunFile& file) {
  const std::string text = file.read(end_, kPiece);
  std::string_view rest = text;
  for (size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
    end_ += end + 1;
    take(rest.substr(0, end), end_);
  }
  if (rest.size() == kPiece) end_ += kPiece;  // no line is that long: it is passed over
  return text.size() < kPiece;
}

void LiveMetrics::search_validations(const RunFile& file) {
  for (uint64_t searched = 0; searched < kSearched && !unsearched_.empty();) {
    Range& range = unsearched_.front();
    const std::string text = file.read(range.from, std::min(kPiece, range.to - range.from));
    const size_t whole = text.rfind('\n') + 1;
    for (size_t at = 0; (at = text.find(kValidation, at)) < whole;) {
      const size_t begin = text.rfind('\n', at) + 1, end = text.find('\n', at);
      take(std::string_view(text).substr(begin, end - begin), range.from + end + 1);
      at = end;
    }
    range.from += whole > 0 ? whole : text.size();
    searched += text.size();
    if (range.from >= range.to || text.empty()) unsearched_.pop_front();
  }
}

void LiveMetrics::take(std::string_view line, uint64_t end) {
  const json record = parse_json_or_discard(line);
  if (!record.is_object() || !record.contains("step")) return;
  if (record.contains("valid_loss")) {
    const auto place = std::ranges::upper_bound(validations_, end, {}, &LiveValidation::end);
    validations_.insert(place, validation_of(record, end));
    ++validations_seen_;
  } else if (record.contains("loss")) {
    points_.push_back(point_of(record, end));
    newest_.push_back(points_.back());
    if (newest_.size() > kNewest) newest_.pop_front();
  }
}

double LiveMetrics::step_seconds() const {
  if (newest_.size() < 2) return record::kUnknown;
  const LivePoint &first = newest_.front(), &last = newest_.back();
  if (last.step <= first.step) return record::kUnknown;
  return (last.seconds - first.seconds) / static_cast<double>(last.step - first.step);
}

}  // namespace ballast::serving
