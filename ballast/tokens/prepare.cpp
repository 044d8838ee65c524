// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/prepare.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "ballast/text/builtin_corpus.h"
#include "ballast/text/split_names.h"
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
  uint64_t empty_documents() const override { return reader_->empty_documents(); }

 private:
  std::unique_ptr<text::TextReader> reader_;
  const PrepareRequest& request_;
};

// A split that is being written, and from how many files.
class OpenSplit {
 public:
  OpenSplit(const fs::path& folder, const char* name, const tokenizer::Tokenizer& tokenizer,
            const PrepareRequest& request)
      : writer_(folder, name, tokenizer, request.shard_tokens, request.framing) {}

  void append(const EncodedPiece& piece, uint32_t domain) {
    files_ += last_file_ != piece.file;
    last_file_ = piece.file;
    writer_.append(domain, piece.ids, piece.source_bytes);
    if (piece.ends_document)
      writer_.end_document(std::isnan(piece.nats) ? std::nullopt : std::optional(piece.nats));
  }
  void end_reader() { last_file_.reset(); }  // the next one counts its files anew

  SplitWriter& writer() { return writer_; }
  uint64_t files() const { return files_; }

 private:
  SplitWriter writer_;
  uint64_t files_ = 0;
  std::optional<uint32_t> last_file_;
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
      list_files();
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
      list_files();
      train_ = open_train();
      write_splits();
    }
    result_.index.tokenizer = identity_of(*tokenizer_);
    result_.index.is_framed =
        request_.framing == tokenizer::Framing::kFramed && tokenizer::has_frame(*tokenizer_);
    tokenizer_->save(folder_);
    result_.index.tokenizer_files = tokenizer_files_in(folder_);
    write_text_atomically(folder_ / TokenDataset::kIndexFile, result_.index.to_text());
    return std::move(result_);
  }

 private:
  // Both, before any of them is read: what can be seen at once is said at once.
  void list_files() {
    if (is_builtin(request_)) return;
    files_ = text::list_text_files(as_paths(request_.inputs), request_.reading);
    for (const text::TextFile& file : files_.files) {
      if (file.split != text::Split::kUnsaid)
        ++result_.named_files[std::string(text::name_of(file.split))];
    }
    result_.skipped = files_.skipped;
    if (request_.valid_inputs.empty()) return;
    text::ListOptions reading = request_.reading;
    reading.split_names = text::SplitNames::kIgnored;
    valid_files_ = text::list_text_files(as_paths(request_.valid_inputs), reading);
    std::ranges::copy(valid_files_.skipped, std::back_inserter(result_.skipped));
  }

  std::unique_ptr<text::TextReader> open_train() const {
    return stoppable(is_builtin(request_)
                         ? text::read_builtin_corpus(request_.seed, "train", request_.builtin_bytes)
                         : text::read_text_files(files_, request_.field));
  }

  std::unique_ptr<text::TextReader> stoppable(std::unique_ptr<text::TextReader> reader) const {
    return std::make_unique<StoppableReader>(std::move(reader), request_);
  }

  std::unique_ptr<text::TextReader> open_valid() const {
    if (!request_.valid_inputs.empty()) {
      return stoppable(text::read_text_files(valid_files_, request_.field));
    }
    if (!is_builtin(request_) || request_.valid_fraction == 0) return nullptr;
    const double bytes = request_.valid_fraction * static_cast<double>(request_.builtin_bytes);
    return stoppable(text::read_builtin_corpus(
        request_.seed, "valid", std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(bytes)))));
  }

  // The share of the training text's documents that is validation instead.
  double document_fraction() const {
    const bool is_known =
        is_builtin(request_) || !request_.valid_inputs.empty() || files_.has(text::Split::kValid);
    return is_known ? 0 : request_.valid_fraction;
  }

  void write_splits() {
    const double fraction = document_fraction();
    const auto given = open_valid();
    OpenSplit train(folder_, "train", *tokenizer_, request_);
    OpenSplit valid(folder_, "valid", *tokenizer_, request_);
    OpenSplit test(folder_, "test", *tokenizer_, request_);
    encode("encoding", *train_, [&](const EncodedPiece& piece) -> OpenSplit& {
      if (piece.split == text::Split::kTest) return test;
      const bool is_valid = piece.split == text::Split::kValid ||
                            is_validation_document(piece.document_key, fraction);
      return is_valid ? valid : train;
    });
    if (given) {
      valid.end_reader();
      encode("encoding validation text", *given,
             [&](const EncodedPiece&) -> OpenSplit& { return valid; });
    }
    if (train.writer().totals().documents == 0) {
      fail(
          "all {} documents fell into the validation split: lower --valid-fraction, or name "
          "validation text with --valid",
          valid.writer().totals().documents);
    }
    SplitIndex train_index = close("train", train), valid_index = close("valid", valid);
    SplitIndex test_index = close("test", test);
    if (!valid_index.shards.empty()) {
      result_.validation = given                             ? ValidationOrigin::kGiven
                           : files_.has(text::Split::kValid) ? ValidationOrigin::kNamed
                                                             : ValidationOrigin::kDocuments;
    } else if (fraction > 0) {
      take_tail(train_index, valid_index, fraction);
    }
    result_.index.splits["train"] = std::move(train_index);
    if (!valid_index.shards.empty()) result_.index.splits["valid"] = std::move(valid_index);
    if (!test_index.shards.empty()) result_.index.splits["test"] = std::move(test_index);
  }

  SplitIndex close(const char* name, OpenSplit& split) {
    if (!is_builtin(request_) && split.files() > 0) result_.input_files[name] = split.files();
    return split.writer().finish(result_.index.domains.size());
  }

  void take_tail(SplitIndex& train, SplitIndex& valid, double fraction) {
    TailSplit tail =
        split_off_tail(folder_, std::move(train), *tokenizer_, fraction, request_.shard_tokens);
    train = std::move(tail.train);
    valid = std::move(tail.valid);
    result_.validation = ValidationOrigin::kTail;
    if (valid.shards.empty()) {
      result_.validation = ValidationOrigin::kNone;
      log_warning("too little text for a validation split");
    }
  }

  template <typename Choose>
  void encode(const char* title, text::TextReader& reader, Choose choose) {
    std::vector<uint32_t> domains;
    for (const std::string& name : reader.domains()) domains.push_back(domain_index(name));
    Progress progress(title, reader.total_bytes(), "bytes");
    uint64_t read = 0;
    encode_documents(reader, *tokenizer_, request_.threads, [&](const EncodedPiece& piece) {
      choose(piece).append(piece, domains.at(piece.domain));
      progress.advance(reader.bytes_read() - read);
      read = reader.bytes_read();
    });
    result_.empty_documents += reader.empty_documents();
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
  text::FileList files_, valid_files_;
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
