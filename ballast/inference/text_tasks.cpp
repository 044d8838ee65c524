// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/text_tasks.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "ballast/system/error.h"

namespace ballast::inference {
namespace {

// Bytes of the white space at the start of `text`, as Python's str has it; 0: there is none.
size_t space_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0U; };
  const uint32_t first = byte(0), second = byte(1), third = byte(2);
  if (text.empty()) return 0;
  if (first == ' ' || (first >= 0x09 && first <= 0x0d) || (first >= 0x1c && first <= 0x1f))
    return 1;
  if (first == 0xc2 && (second == 0x85 || second == 0xa0)) return 2;
  const bool is_space = (first == 0xe1 && second == 0x9a && third == 0x80) ||  // U+1680
                        (first == 0xe2 && second == 0x80 && third >= 0x80 &&
                         (third <= 0x8a || third == 0xa8 || third == 0xa9 || third == 0xaf)) ||
                        (first == 0xe2 && second == 0x81 && third == 0x9f) ||  // U+205F
                        (first == 0xe3 && second == 0x80 && third == 0x80);    // U+3000
  return is_space ? 3 : 0;
}

// Where the white space at the end of `text` begins.
size_t end_without_space(std::string_view text) {
  for (size_t end = text.size();;) {
    size_t length = 0;
    for (size_t size = 1; size <= std::min<size_t>(3, end); ++size)
      if (space_length(text.substr(end - size, size)) == size) length = size;
    if (length == 0) return end;
    end -= length;
  }
}

std::vector<int64_t> encode(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  std::vector<tokenizer::TokenId> ids;
  tokenizer.encode(text, ids);
  return {ids.begin(), ids.end()};
}

uint64_t characters(std::string_view text) {
  return static_cast<uint64_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0U) != 0x80U; }));
}

// A mean over items, with its standard error where there are several.
Metric mean_metric(std::string name, const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  for (const double value : values) squares += (value - sum / n) * (value - sum / n);
  Metric metric{.name = std::move(name), .value = sum / n};
  if (n > 1) metric.error = std::sqrt(squares / (n - 1) / n);
  return metric;
}

void check_length(const Continuation& one, const Reader& reader, size_t item) {
  if (one.target.empty())
    fail("{}, item {}: what is to be predicted has no tokens", reader.file, item + 1);
  if (std::ssize(one.target) > reader.context) {
    fail("{}, item {}: what is to be predicted has {} tokens, more than the model's context of {}",
         reader.file, item + 1, one.target.size(), reader.context);
  }
}

}  // namespace

uint64_t count_words(std::string_view text) {
  uint64_t runs = 0;
  for (bool in_space = false; !text.empty();) {
    const size_t length = space_length(text);
    runs += length > 0 && !in_space;
    in_space = length > 0;
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return runs + 1;
}

Continuation encode_pair(const tokenizer::Tokenizer& tokenizer, std::string_view context,
                         std::string_view continuation) {
  const std::string whole = std::string(context).append(continuation);
  context = context.substr(0, end_without_space(context));
  if (context.empty())
    return {.context = {tokenizer.end_of_text()}, .target = encode(tokenizer, whole)};
  Continuation pair{.context = encode(tokenizer, context), .target = {}};
  const std::vector<int64_t> tokens = encode(tokenizer, whole);
  const auto before = std::min(std::ssize(tokens), std::ssize(pair.context));
  pair.target.assign(tokens.begin() + before, tokens.end());
  return pair;
}

TextTask word_perplexity(const Reader& reader, const std::vector<std::string>& documents) {
  TextTask task;
  double words = 0, bytes = 0;
  for (const std::string& document : documents) {
    words += static_cast<double>(count_words(document));
    bytes += static_cast<double>(document.size());
    for (Continuation& window : rolling_windows(encode(reader.tokenizer, document),
                                                reader.tokenizer.end_of_text(), reader.context))
      task.questions.push_back(std::move(window));
  }
  task.sum_up = [words, bytes,
                 items = documents.size()](const std::vector<ContinuationScore>& scores) {
    double nats = 0;
    for (const ContinuationScore& score : scores) nats += score.nats;
    return TaskResult{.items = items,
                      .metrics = {{"word_perplexity", std::exp(nats / words)},
                                  {"byte_perplexity", std::exp(nats / bytes)},
                                  {"bits_per_byte", nats / bytes / std::numbers::ln2}}};
  };
  return task;
}

TextTask last_words(const Reader& reader, const std::vector<LastWordItem>& items) {
  TextTask task;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string_view text = items[i].text;
    const size_t space = text.rfind(' ');
    if (space == text.npos || space + 1 == text.size())
      fail("{}, item {}: its text has no last word after a space", reader.file, i + 1);
    task.questions.push_back(
        encode_pair(reader.tokenizer, text.substr(0, space), text.substr(space)));
    check_length(task.questions.back(), reader, i);
  }
  task.sum_up = [](const std::vector<ContinuationScore>& scores) {
    std::vector<double> nats, hits;
    for (const ContinuationScore& score : scores) {
      nats.push_back(score.nats);
      hits.push_back(score.is_likeliest ? 1 : 0);
    }
    return TaskResult{.items = scores.size(),
                      .metrics = {{"perplexity", std::exp(mean_metric("", nats).value)},
                                  mean_metric("acc", hits)}};
  };
  return task;
}

TextTask multiple_choice(const Reader& reader, const std::vector<ChoiceItem>& items) {
  TextTask task;
  for (size_t i = 0; i < items.size(); ++i) {
    for (const std::string& choice : items[i].choices) {
      task.questions.push_back(encode_pair(reader.tokenizer, items[i].query, " " + choice));
      check_length(task.questions.back(), reader, i);
    }
  }
  task.sum_up = [items](const std::vector<ContinuationScore>& scores) {
    std::vector<double> hits, norm_hits;
    size_t next = 0;
    for (const ChoiceItem& item : items) {
      size_t best = 0, best_norm = 0;
      double least = INFINITY, least_norm = INFINITY;
      for (size_t i = 0; i < item.choices.size(); ++i) {
        const double nats = scores.at(next++).nats;
        const double norm = nats / static_cast<double>(characters(item.choices[i]));
        if (nats < least) best = i, least = nats;
        if (norm < least_norm) best_norm = i, least_norm = norm;
      }
      hits.push_back(best == item.gold ? 1 : 0);
      norm_hits.push_back(best_norm == item.gold ? 1 : 0);
    }
    return TaskResult{.items = items.size(),
                      .metrics = {mean_metric("acc", hits), mean_metric("acc_norm", norm_hits)}};
  };
  return task;
}

}  // namespace ballast::inference
