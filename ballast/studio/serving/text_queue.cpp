// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/text_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ballast/studio/serving/http_server.h"
#include "ballast/system/log.h"

namespace ballast::serving {
namespace {

constexpr size_t kMaxTexts = 4096;

}  // namespace

TextQueue::TextQueue(const loading::LoadedModel& model, experts::RoutingMode routing, int64_t rows)
    : model_(model), routing_(routing), rows_(rows) {}

void TextQueue::add(std::vector<inference::Writing> texts, const ServedModels::Failure& failed) {
  if (texts_.size() + texts.size() > kMaxTexts) {
    throw Refused(503, fmt::format("{} texts are being written or wait for their turn, and no more "
                                   "fit: ask again later",
                                   texts_.size()));
  }
  if (writer_ == nullptr) {
    writer_ = std::make_unique<inference::Writer>(*model_.model, model_.place,
                                                  model_.tokenizer->end_of_text(), routing_, rows_);
  }
  const auto told = std::make_shared<const ServedModels::Failure>(failed);
  for (inference::Writing& text : texts) {
    const uint64_t number = number_++;
    text.on_end = [this, number, on_end = std::move(text.on_end)](inference::WritingEnd end) {
      texts_.erase(number);
      on_end(end);
    };
    writer_->add(std::move(text));
    texts_[number] = told;  // step() alone calls on_end
  }
}

TextCounts TextQueue::counts() const {
  const auto all = static_cast<int64_t>(texts_.size());
  return {.written = std::min(all, rows_), .waiting = std::max<int64_t>(all - rows_, 0)};
}

void TextQueue::step() {
  if (is_empty()) return;
  try {
    writer_->step();
  } catch (const std::exception& error) {
    fail_all(error);
  }
}

void TextQueue::fail_all(const std::exception& error) {
  std::set<std::shared_ptr<const ServedModels::Failure>> all;
  for (const auto& [number, told] : texts_) all.insert(told);
  writer_.reset();  // what it was about is unknown now
  texts_.clear();
  for (const auto& told : all) (*told)(error);
}

}  // namespace ballast::serving
