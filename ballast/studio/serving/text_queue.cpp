// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/text_queue.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "ballast/studio/serving/http_server.h"
#include "ballast/system/log.h"

namespace ballast::serving {
namespace {

constexpr size_t kMaxWaiting = 4096;

}  // namespace

TextQueue::TextQueue(const loading::LoadedModel& model, experts::RoutingMode routing, int64_t rows)
    : model_(model), routing_(routing), rows_(rows) {}

void TextQueue::add(std::vector<ServedText> texts, const ServedModels::Failure& failed) {
  if (waiting_.size() + texts.size() > kMaxWaiting)
    throw Refused(503, fmt::format("{} texts wait for their turn, and no more fit: ask again later",
                                   waiting_.size()));
  const auto told = std::make_shared<const ServedModels::Failure>(failed);
  for (ServedText& text : texts) waiting_.push_back({std::move(text), told});
}

TextCounts TextQueue::counts() const {
  return {.written = static_cast<int64_t>(written_.size()),
          .waiting = static_cast<int64_t>(waiting_.size())};
}

void TextQueue::begin_texts() {
  while (!waiting_.empty() && std::ssize(written_) < rows_) {
    auto [text, failed] = std::move(waiting_.front());
    waiting_.pop_front();
    if (!text.wanted()) continue;
    const uint64_t number = number_++;
    written_[number] = std::move(failed);
    text.writing.on_end = [this, number,
                           told = std::move(text.writing.on_end)](inference::WritingEnd end) {
      written_.erase(number);
      told(end);
    };
    if (writer_ == nullptr) {
      writer_ = std::make_unique<inference::Writer>(
          *model_.model, model_.place, model_.tokenizer->end_of_text(), routing_, rows_);
    }
    writer_->add(std::move(text.writing));
  }
}

void TextQueue::step() {
  if (is_empty()) return;
  try {
    begin_texts();
    if (!written_.empty()) writer_->step();
  } catch (const std::exception& error) {
    log_warning("writing failed: {}", error.what());
    fail_all(error);
  }
}

void TextQueue::fail_all(const std::exception& error) {
  std::set<Told> all;
  for (const auto& [number, told] : written_) all.insert(told);
  for (const Waiting& text : waiting_) all.insert(text.failed);
  writer_.reset();
  written_.clear();
  waiting_.clear();
  for (const Told& told : all) (*told)(error);
}

}  // namespace ballast::serving
