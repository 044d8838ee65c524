// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/prepare.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "ballast/text/builtin_corpus.h"
#include "ballast/text/text_files.h"
#include "ballast/tokens/encode_documents.h"
#include "ballast/tokens/split_writer.h"
#include "ballast/tokens/tail_split.h"
#include "ballast/tokens/text_input.h"

namespace ballast::tokens {
namespace {

bool is_builtin(const PrepareRequest& request) {
  return request.inputs == std::vector<std::string>{"builtin"};
}

void check(const PrepareRequest& request) {
  if (request.inputs.empty()) {
    fail("no text to prepare: name files, folders, - for standard input, or builtin");
  }
  if (std::count(request.inputs.begin(), request.inputs.end(), "builtin") > 0 &&
      !is_builtin(request)) {
    fail(
        "builtin stands alone: prepare it and your text apart, and mix them when training "
        "(a file of that name is ./builtin)");
  }
  if (is_builtin(request) && !request.valid_inputs.empty()) {
    fail("builtin brings its own validation text: leave out --valid");
  }
  if (!(request.valid_fraction >= 0 && request.valid_fraction < 1)) {
    fail("--valid-fraction is {}, but must be at least 0 and below 1", request.valid_fraction);
  }
  if (request.shard_tokens < 1024) {
    fail("--shard-tokens is {}, but must be at least 1024", request.shard_tokens);
  }
  if (request.out.empty()) fail("no output folder: name one with --out");
}

bool lies_within(const fs::path& inner, const fs::path& outer) {
  const fs::path inside =
      fs::weakly_canonical(inner).lexically_relative(fs::weakly_canonical(outer));
  return !inside.empty() && *inside.begin() != "..";
}

void check_paths(const PrepareRequest& request) {
  std::vector<std::string> inputs = request.inputs;
  inputs.insert(inputs.end(), request.valid_inputs.begin(), request.valid_inputs.end());
  int standard_inputs = 0;
  for (const std::string& input : inputs) {
    const fs::path path = path_of_input(input);
    if (path == "-" && ++standard_inputs == 2) fail("standard input (-) can be read only once");
    const bool is_path = path != "-" && !is_builtin(request);
    if (is_path && lies_within(path, request.out) && !lies_within(request.out, path)) {
      fail("the input {} lies within --out {}: choose another folder", path.string(),
           request.out.string());
    }
    if (!fs::is_directory(path)) continue;
    if (TokenDataset::is_dataset(path)) {
      fail("{} is a data set that was prepared already: train on it with `ballast train --data {}`",
           path.string(), path.string());
    }
    if (lies_within(request.out, path)) {
      fail(
          "--out {} lies within the input {}, where the next run would take it for text: choose a "
          "folder outside",
          request.out.string(), path.string());
    }
  }
}

std::vector<fs::path> as_paths(const std::vector<std::string>& inputs) {
  return {inputs.begin(), inputs.end()};
}

void stop_if_requested(const PrepareRequest& request) {
  if (request.stop_requested && request.stop_requested()) fail("stopped; nothing was written");
}

// Ends with a UserError between two pieces when that is requested.
class StoppableReader : public text::TextReader {
 public:
  StoppableReader(std::unique_ptr<text::TextReader> reader, const PrepareRequest& request)
      : reader_(std::move(reader)), request_(request) {}
  bool next(text::TextPiece& piece) override {
    stop_if_requested(request_);
    return reader_->next(piece);
  }
  const std::vector<std::string>& domains() const override { return reader_->domains(); }
  uint64_t total_bytes() const override { return reader_->total_bytes(); }
  uint64_t bytes_read() const override { return reader_->bytes_read(); }

 private:
  std::unique_ptr<text::TextReader> reader_;
  const PrepareRequest& request_;
};

// One run: opens the text as often as needed and fills the staged folder.
class Preparation {
 public:
  Preparation(const PrepareRequest& request, const fs::path& folder)
      : request_(request), folder_(folder) {}

  PrepareResult run() {
    if (request_.tokenizer == "bpe") {
      const fs::path spool = folder_ / "standard_input";
      request_.inputs = spool_standard_input(std::move(request_.inputs), spool,
                                             [&] { stop_if_requested(request_); });
      train_ = open_train();
      tokenizer_ = train_tokenizer(*train_, {.vocabulary_size = request_.vocabulary_size,
                                             .bytes = request_.sample_bytes,
                                             .valid_fraction = document_fraction(),
                                             .threads = request_.threads});
      train_ = open_train();
      write_splits();
      fs::remove(spool);
    } else {
      tokenizer_ = tokenizer::load_tokenizer(request_.tokenizer);
      train_ = open_train();
      write_splits();
    }
    result_.index.tokenizer = identity_of(*tokenizer_);
    tokenizer_->save(folder_);
    result_.index.tokenizer_files = tokenizer_files_in(folder_);
    write_text_atomically(folder_ / TokenDataset::kIndexFile, result_.index.to_text());
    return std::move(result_);
  }

 private:
  std::unique_ptr<text::TextReader> open_train() const {
    return stoppable(is_builtin(request_)
                         ? text::read_builtin_corpus(request_.seed, "train", request_.builtin_bytes)
                         : text::read_text_files(as_paths(request_.inputs)));
  }

  std::unique_ptr<text::TextReader> stoppable(std::unique_ptr<text::TextReader> reader) const {
    return std::make_unique<StoppableReader>(std::move(reader), request_);
  }

  std::unique_ptr<text::TextReader> open_valid() const {
    if (!request_.valid_inputs.empty()) {
      return stoppable(text::read_text_files(as_paths(request_.valid_inputs)));
    }
    if (!is_builtin(request_) || request_.valid_fraction == 0) return nullptr;
    const double bytes = request_.valid_fraction * static_cast<double>(request_.builtin_bytes);
    return stoppable(text::read_builtin_corpus(
        request_.seed, "valid", std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(bytes)))));
  }

  // The share of the training text's documents that is validation instead.
  double document_fraction() const {
    return is_builtin(request_) || !request_.valid_inputs.empty() ? 0 : request_.valid_fraction;
  }

  void write_splits() {
    const double fraction = document_fraction();
    const auto given = open_valid();
    SplitWriter train(folder_, "train", *tokenizer_, request_.shard_tokens);
    SplitWriter valid(folder_, "valid", *tokenizer_, request_.shard_tokens);
    encode("encoding", *train_, [&](uint64_t key) -> SplitWriter& {
      return is_validation_document(key, fraction) ? valid : train;
    });
    if (given)
      encode("encoding validation text", *given, [&](uint64_t) -> SplitWriter& { return valid; });
    if (train.totals().documents == 0) {
      fail(
          "all {} documents fell into the validation split: lower --valid-fraction, or name "
          "validation text with --valid",
          valid.totals().documents);
    }
    const size_t num_domains = result_.index.domains.size();
    SplitIndex train_index = train.finish(num_domains), valid_index = valid.finish(num_domains);
    if (!valid_index.shards.empty()) {
      result_.validation = given ? ValidationOrigin::kGiven : ValidationOrigin::kDocuments;
    } else if (fraction > 0) {
      TailSplit tail = split_off_tail(folder_, std::move(train_index), *tokenizer_, fraction,
                                      request_.shard_tokens);
      train_index = std::move(tail.train);
      valid_index = std::move(tail.valid);
      result_.validation = ValidationOrigin::kTail;
      if (valid_index.shards.empty()) {
        result_.validation = ValidationOrigin::kNone;
        log_warning("too little text for a validation split");
      }
    }
    result_.index.splits["train"] = std::move(train_index);
    if (!valid_index.shards.empty()) result_.index.splits["valid"] = std::move(valid_index);
  }

  template <typename Choose>
  void encode(const char* title, text::TextReader& reader, Choose choose) {
    std::vector<uint32_t> domains;
    for (const std::string& name : reader.domains()) domains.push_back(domain_index(name));
    Progress progress(title, reader.total_bytes(), "bytes");
    uint64_t read = 0;
    encode_documents(reader, *tokenizer_, request_.threads, [&](const EncodedPiece& piece) {
      SplitWriter& split = choose(piece.document_key);
      split.append(domains.at(piece.domain), piece.ids, piece.source_bytes);
      if (piece.ends_document) {
        split.end_document(std::isnan(piece.nats) ? std::nullopt : std::optional(piece.nats));
      }
      progress.advance(reader.bytes_read() - read);
      read = reader.bytes_read();
    });
  }

  uint32_t domain_index(const std::string& name) {
    std::vector<std::string>& names = result_.index.domains;
    const auto found = std::find(names.begin(), names.end(), name);
    const auto index = static_cast<uint32_t>(found - names.begin());
    if (found == names.end()) names.push_back(name);
    return index;
  }

  PrepareRequest request_;
  fs::path folder_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<text::TextReader> train_;
  PrepareResult result_;
};

}  // namespace

PrepareResult prepare(const PrepareRequest& request) {
  try {
    check(request);
    check_paths(request);
    StagedFolder staged(request.out, request.existing);
    PrepareResult result = Preparation(request, staged.path()).run();
    stop_if_requested(request);
    staged.publish();
    return result;
  } catch (const UserError&) {
    stop_if_requested(request);  // what could not be read then is no fault
    throw;
  } catch (const fs::filesystem_error& error) {
    fail("{}: {}", error.path1().string(), error.code().message());
  }
}

}  // namespace ballast::tokens
