// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/text_tasks.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "ballast/inference/white_space.h"
#include "ballast/inference/wikitext.h"
#include "ballast/system/error.h"

namespace ballast::inference {
namespace {

std::vector<int64_t> encode(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                            const std::vector<tokenizer::TokenId>& begin = {}) {
  std::vector<tokenizer::TokenId> ids = begin;
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
                         std::string_view continuation, tokenizer::Framing framing) {
  const std::string whole = std::string(context).append(continuation);
  context = without_space_at_end(context);
  const std::vector<tokenizer::TokenId> start = tokenizer::start_of_text(tokenizer, framing);
  if (context.empty())
    return {.context = {start.begin(), start.end()}, .target = encode(tokenizer, whole)};
  const auto begin = tokenizer::begin_of_document(tokenizer, framing);
  Continuation pair{.context = encode(tokenizer, context, begin), .target = {}};
  const std::vector<int64_t> tokens = encode(tokenizer, whole, begin);
  const auto before = std::min(std::ssize(tokens), std::ssize(pair.context));
  pair.target.assign(tokens.begin() + before, tokens.end());
  return pair;
}

namespace {

// A document as the model reads it, and what its surprise is divided by.
struct WeighedText {
  std::string text;
  uint64_t words = 0, bytes = 0;
};

TextTask perplexity_of(const Reader& reader, const std::vector<WeighedText>& documents) {
  TextTask task;
  double words = 0, bytes = 0;
  const int64_t first = tokenizer::start_of_text(reader.tokenizer, reader.framing).back();
  for (const WeighedText& document : documents) {
    words += static_cast<double>(document.words);
    bytes += static_cast<double>(document.bytes);
    for (Continuation& window :
         rolling_windows(encode(reader.tokenizer, document.text), first, reader.context))
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

}  // namespace

TextTask word_perplexity(const Reader& reader, const std::vector<std::string>& documents) {
  std::vector<WeighedText> weighed;
  for (const std::string& document : documents)
    weighed.push_back({document, count_words(document), document.size()});
  return perplexity_of(reader, weighed);
}

TextTask wikitext_perplexity(const Reader& reader, const std::vector<std::string>& files) {
  std::vector<WeighedText> weighed;
  for (const std::string& file : files) {
    for (const std::string& page : wikitext_pages(file))
      weighed.push_back({wikitext_detokenized(page), count_words(page), page.size()});
  }
  return perplexity_of(reader, weighed);
}

TextTask last_words(const Reader& reader, const std::vector<LastWordItem>& items) {
  TextTask task;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string_view text = items[i].text;
    const size_t space = text.rfind(' ');
    if (space == text.npos || space + 1 == text.size())
      fail("{}, item {}: its text has no last word after a space", reader.file, i + 1);
    task.questions.push_back(
        encode_pair(reader.tokenizer, text.substr(0, space), text.substr(space), reader.framing));
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
      task.questions.push_back(
          encode_pair(reader.tokenizer, items[i].query, " " + choice, reader.framing));
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
