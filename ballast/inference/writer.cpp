// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/writer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "ballast/inference/score.h"
#include "ballast/kernels/parallel_ranges.h"
#include "ballast/kernels/rows_alone.h"
#include "ballast/system/random.h"

namespace ballast::inference {

using at::Tensor;
using tokenizer::TokenId;

namespace {

constexpr int64_t kLogitRows = 256;   // rows of the vocabulary's size that are there at a time
constexpr size_t kReadAtATime = 512;  // tokens of new texts, for which those being written wait

struct Text {
  Writing writing;  // its text grows
  int64_t row;
  int64_t cached = 0;  // tokens in its row of the cache
  int64_t written = 0;
  std::optional<WritingEnd> end = {};
};

// Logits [T, V] as rows of floats on the host.
class LogitRows {
 public:
  explicit LogitRows(const Tensor& logits) : logits_(logits.to(at::kFloat).cpu().contiguous()) {}
  std::span<const float> operator[](int64_t row) const {
    const int64_t vocabulary = logits_.size(1);
    return {logits_.const_data_ptr<float>() + row * vocabulary, static_cast<size_t>(vocabulary)};
  }

 private:
  Tensor logits_;
};

Tensor on_host(std::span<const int64_t> ids) {
  Tensor host = at::empty({std::ssize(ids)}, at::kLong);
  std::ranges::copy(ids, host.mutable_data_ptr<int64_t>());
  return host;
}

}  // namespace

class Writer::Impl {
 public:
  Impl(const model::LanguageModel& model, const model::ComputePlace& place, TokenId end_of_text,
       experts::RoutingMode routing, int64_t rows)
      : model_(model),
        place_(place),
        end_of_text_(end_of_text),
        routing_{.mode = routing},
        cache_(model.new_cache(rows, at::device(place.device).dtype(place.working))),
        rows_(rows),
        skips_free_rows_(place.device.is_cpu() &&
                         (place.working == at::kFloat || place.working == at::kDouble)) {
    for (int64_t row = rows - 1; row >= 0; --row) free_rows_.push_back(row);
  }

  void add(Writing writing) {
    const auto vocabulary = static_cast<TokenId>(model_.config().vocabulary);
    if (writing.text.empty()) throw std::invalid_argument("Writer: a text without tokens");
    if (std::ranges::max(writing.text) >= vocabulary)
      throw std::invalid_argument("Writer: a token that is not of the model's vocabulary");
    waiting_.push_back(std::move(writing));
  }

  bool step() {
    const at::NoGradGuard no_grad;
    const bool has_read = read_waiting();
    if (texts_.empty()) return has_read;
    const LogitRows logits(next_logits());
    const std::vector<TokenId> tokens = choose(logits);
    const std::vector<WrittenToken> written = likelihoods(tokens, logits);
    for (size_t i = 0; i < texts_.size(); ++i) tell(texts_[i], written[i]);
    end_texts();
    return true;
  }

 private:
  Tensor to_device(const std::vector<int64_t>& ids) const { return on_host(ids).to(place_.device); }

  // Texts that nobody waits for any more leave the queue, also where no row is free. Whether any
  // did.
  bool end_unwanted() {
    std::vector<Writing> unwanted;
    for (Writing& writing : std::exchange(waiting_, {})) {
      const bool is_wanted = !writing.is_wanted || writing.is_wanted();
      if (is_wanted) {
        waiting_.push_back(std::move(writing));
      } else {
        unwanted.push_back(std::move(writing));
      }
    }
    for (const Writing& writing : unwanted) {
      if (writing.on_end) writing.on_end(WritingEnd::kStopped);
    }
    return !unwanted.empty();
  }

  // Whether there was any.
  bool read_waiting() {
    bool any = end_unwanted();
    std::vector<Text> begun;
    for (size_t read = 0; read < kReadAtATime && !waiting_.empty() && !free_rows_.empty();) {
      any = true;
      begun.push_back({.writing = std::move(waiting_.front()), .row = free_rows_.back()});
      waiting_.pop_front();
      free_rows_.pop_back();
      read += begun.back().writing.text.size();
    }
    begin(begun);
    std::ranges::move(begun, std::back_inserter(texts_));
    end_texts();
    return any;
  }

  bool fits(const Writing& writing) const {
    return std::ssize(writing.text) <= model_.config().context;
  }

  void begin(std::vector<Text>& texts) {
    std::vector<Text*> needed;
    for (Text& text : texts) {
      if (text.writing.max_tokens <= 0) text.end = WritingEnd::kLength;
      if (!text.end || (text.writing.on_read && fits(text.writing))) needed.push_back(&text);
    }
    const bool is_read =
        std::ranges::any_of(texts, [](const Text& text) { return bool(text.writing.on_read); });
    const std::vector<Tensor> hidden = read(needed, is_read);
    size_t next = 0;
    for (Text& text : texts) {
      const bool was_read = next < needed.size() && needed[next] == &text;
      const Tensor of_text = was_read ? hidden[next++] : Tensor();
      const Writing& writing = text.writing;
      if (writing.on_read)
        writing.on_read(fits(writing) ? likelihoods(writing, of_text) : rolling(writing));
    }
  }

  // Reads all but the last token of each text into its row of the cache; of one that does not fit
  // half a context, so that there is room to go on. Gives what the model made of each, if any, and
  // if that is wanted.
  std::vector<Tensor> read(std::span<Text* const> texts, bool wanted) {
    std::vector<std::vector<int64_t>> parts;
    for (Text* const text : texts) {
      const std::vector<TokenId>& all = text->writing.text;
      const auto context = static_cast<size_t>(model_.config().context);
      const size_t kept = fits(text->writing) ? all.size() : std::max<size_t>(1, context / 2);
      parts.emplace_back(all.end() - static_cast<std::ptrdiff_t>(kept), all.end() - 1);
      text->cached = static_cast<int64_t>(kept) - 1;
    }
    if (skips_free_rows_) return read_together(texts, parts, wanted);
    std::vector<Tensor> hidden(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      model::KeyValueCache row = cache_.emptied_row(texts[i]->row);
      if (parts[i].empty()) continue;
      hidden[i] = model_.forward(to_device(parts[i]).unsqueeze(0), routing_, row);
    }
    return hidden;
  }

  // All tokens are rows of the same products. What becomes of each depends on those before it in
  // its text alone.
  std::vector<Tensor> read_together(std::span<Text* const> texts,
                                    const std::vector<std::vector<int64_t>>& parts, bool wanted) {
    std::vector<int64_t> ids, rows, positions;
    for (size_t i = 0; i < texts.size(); ++i) {
      ids.insert(ids.end(), parts[i].begin(), parts[i].end());
      rows.insert(rows.end(), parts[i].size(), texts[i]->row);
      for (int64_t place = 0; place < std::ssize(parts[i]); ++place) positions.push_back(place);
    }
    std::vector<Tensor> made;
    for (size_t first = 0; first < ids.size(); first += kReadAtATime) {
      const size_t count = std::min(kReadAtATime, ids.size() - first);
      const auto some = [&](std::span<const int64_t> all) {
        return on_host(all.subspan(first, count));
      };
      model::KeyValueCache cache = cache_.places(some(rows), some(positions));
      const kernels::RowsAlone rows_alone;
      const Tensor hidden = model_.forward(some(ids).unsqueeze(1), routing_, cache);
      if (wanted) made.push_back(hidden);
    }
    if (made.size() > 1) made = {at::cat(made)};
    std::vector<Tensor> hidden(texts.size());
    int64_t first = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (wanted && !parts[i].empty()) hidden[i] = made[0].narrow(0, first, std::ssize(parts[i]));
      first += std::ssize(parts[i]);
    }
    return hidden;
  }

  // Of text[1..], by the hidden rows of what stands before each.
  std::vector<WrittenToken> likelihoods(const Writing& writing, const Tensor& hidden) const {
    std::vector<int64_t> targets(writing.text.begin() + 1, writing.text.end());
    return likelihoods(targets, hidden, writing.likeliest);
  }

  std::vector<WrittenToken> likelihoods(std::span<const int64_t> targets, const Tensor& hidden,
                                        int64_t likeliest) const {
    const kernels::RowsAlone rows_alone;  // `hidden` may lie anywhere among others
    std::vector<WrittenToken> all;
    for (int64_t first = 0; first < std::ssize(targets); first += kLogitRows) {
      const int64_t count = std::min(kLogitRows, std::ssize(targets) - first);
      const LogitRows logits(model_.logits(hidden.narrow(0, first, count)));
      for (int64_t i = 0; i < count; ++i) {
        const auto token = static_cast<TokenId>(targets[static_cast<size_t>(first + i)]);
        all.push_back(likelihood_of(token, logits[i], likeliest));
      }
    }
    return all;
  }

  // The same of a text longer than the context.
  std::vector<WrittenToken> rolling(const Writing& writing) const {
    const std::vector<int64_t> rest(writing.text.begin() + 1, writing.text.end());
    std::vector<WrittenToken> all;
    for (const Continuation& window :
         rolling_windows(rest, writing.text.front(), model_.config().context)) {
      std::vector<int64_t> ids = window.context;
      ids.insert(ids.end(), window.target.begin(), window.target.end() - 1);
      const Tensor hidden = model_.forward(to_device(ids).unsqueeze(0), routing_);
      const auto part =
          likelihoods(window.target,
                      hidden.narrow(0, std::ssize(window.context) - 1, std::ssize(window.target)),
                      writing.likeliest);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // Texts that fill their context.
  void read_again() {
    std::vector<Text*> full;
    for (Text& text : texts_) {
      if (text.cached >= model_.config().context) full.push_back(&text);
    }
    read(full, false);
  }

  // The logits after each text's last token, those of text i in row row_of_logits(i). On a GPU all
  // rows take part, those of no text too: there sizes stay the same.
  Tensor next_logits() {
    read_again();
    std::vector<int64_t> last, rows, positions;
    for (Text& text : texts_) {
      last.push_back(text.writing.text.back());
      rows.push_back(text.row);
      positions.push_back(text.cached++);
    }
    if (skips_free_rows_) {
      const kernels::RowsAlone rows_alone;
      model::KeyValueCache cache = cache_.places(on_host(rows), on_host(positions));
      return model_.logits(model_.forward(on_host(last).unsqueeze(1), routing_, cache));
    }
    std::vector<int64_t> all(static_cast<size_t>(rows_), 0);
    for (size_t i = 0; i < rows.size(); ++i) all[static_cast<size_t>(rows[i])] = last[i];
    if (!free_rows_.empty()) cache_.forget(to_device(free_rows_));
    return model_.logits(model_.forward(to_device(all).unsqueeze(1), routing_, cache_));
  }
  int64_t row_of_logits(size_t text) const {
    return skips_free_rows_ ? static_cast<int64_t>(text) : texts_[text].row;
  }

  // The next token of each text. Those of worker 0 count: the others' logits may differ by
  // rounding, and all must go on with the same.
  std::vector<TokenId> choose(const LogitRows& logits) const {
    const Tensor chosen = at::empty({std::ssize(texts_)}, at::kLong);
    auto* const ids = chosen.mutable_data_ptr<int64_t>();
    for_each_text([&](size_t i) {
      const Writing& writing = texts_[i].writing;
      RandomStream random(writing.seed, "sample", writing.stream,
                          static_cast<uint64_t>(texts_[i].written));
      ids[i] = sample_token(logits[row_of_logits(i)], writing.sampling, random.uniform());
    });
    if (model_.workers().size() > 1) model_.workers().broadcast(chosen, 0, {"new tokens"});
    return {ids, ids + chosen.numel()};
  }

  std::vector<WrittenToken> likelihoods(const std::vector<TokenId>& tokens,
                                        const LogitRows& logits) const {
    std::vector<WrittenToken> written(tokens.size());
    for_each_text([&](size_t i) {
      const int64_t likeliest = texts_[i].writing.likeliest;
      written[i] = likeliest < 0 ? WrittenToken{.chosen = {.token = tokens[i]}}
                                 : likelihood_of(tokens[i], logits[row_of_logits(i)], likeliest);
    });
    return written;
  }

  // On several threads.
  void for_each_text(const std::function<void(size_t)>& work) const {
    const int64_t texts_of_thread = 100'000 / model_.config().vocabulary + 1;
    kernels::parallel_ranges(std::ssize(texts_), texts_of_thread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) work(static_cast<size_t>(i));
    });
  }

  void tell(Text& text, const WrittenToken& written) const {
    Writing& writing = text.writing;
    const TokenId token = written.chosen.token;
    if (token == end_of_text_ && writing.stop_at_end_of_text) {
      text.end = WritingEnd::kEndOfText;
      return;
    }
    writing.text.push_back(token);
    if (++text.written >= writing.max_tokens) text.end = WritingEnd::kLength;
    if (writing.on_token && !writing.on_token(written)) text.end = WritingEnd::kStopped;
  }

  // Lets go of texts that have ended, then tells so.
  void end_texts() {
    std::vector<Text> ended;
    for (Text& text : texts_) {
      if (text.end) ended.push_back(std::move(text));
    }
    std::erase_if(texts_, [](const Text& text) { return text.end.has_value(); });
    for (const Text& text : ended) free_rows_.push_back(text.row);
    for (const Text& text : ended) {
      if (text.writing.on_end) text.writing.on_end(*text.end);
    }
  }

  const model::LanguageModel& model_;
  const model::ComputePlace place_;
  const TokenId end_of_text_;
  const experts::Routing routing_;
  model::KeyValueCache cache_;
  const int64_t rows_;
  const bool skips_free_rows_;
  std::vector<int64_t> free_rows_;
  std::deque<Writing> waiting_;
  std::vector<Text> texts_;  // being written, in the order they came
};

Writer::Writer(const model::LanguageModel& model, const model::ComputePlace& place,
               TokenId end_of_text, experts::RoutingMode routing, int64_t rows)
    : impl_(std::make_unique<Impl>(model, place, end_of_text, routing, rows)) {}
Writer::~Writer() = default;
void Writer::add(Writing writing) { impl_->add(std::move(writing)); }
bool Writer::step() { return impl_->step(); }

}  // namespace ballast::inference
