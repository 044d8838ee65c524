// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/text_input.h"

#include <algorithm>

#include "ballast/system/file.h"
#include "ballast/system/log.h"
#include "ballast/system/parallel.h"
#include "ballast/system/progress.h"
#include "ballast/text/byte_source.h"
#include "ballast/tokenizer/bpe_trainer.h"
#include "ballast/tokens/encode_documents.h"

namespace ballast::tokens {
namespace {

void copy_standard_input(const fs::path& to, const std::function<void()>& check) {
  const auto source = text::open_byte_source("-");
  OutputFile file(to);
  Progress progress("reading standard input", 0, "bytes");
  std::vector<char> buffer(1 << 20);
  while (const size_t n = source->read(buffer)) {
    file.write(std::string_view(buffer.data(), n));
    progress.advance(n);
    check();
  }
  file.finish();
}

// Chooses pieces so that at any point the share of the sample taken is the share of the input read.
class EvenSample {
 public:
  EvenSample(const text::TextReader& reader, uint64_t bytes) : reader_(reader), bytes_(bytes) {}

  bool wants(const text::TextPiece& piece) {
    const double total = static_cast<double>(reader_.total_bytes());
    const double share = total > 0 ? static_cast<double>(reader_.bytes_read()) / total : 1;
    const double due = std::min(share, 1.0) * static_cast<double>(bytes_);
    if (static_cast<double>(taken_) >= due) return false;
    taken_ += piece.text.size();
    return true;
  }

 private:
  const text::TextReader& reader_;
  uint64_t bytes_, taken_ = 0;
};

}  // namespace

fs::path path_of_input(const std::string& input) {
  const size_t equals = input.find('=');
  const bool is_named = equals != input.npos && equals > 0 && input.find('/') > equals;
  return is_named && !fs::exists(input) ? input.substr(equals + 1) : input;
}

std::vector<std::string> spool_standard_input(std::vector<std::string> inputs,
                                              const fs::path& spool,
                                              const std::function<void()>& check) {
  for (std::string& input : inputs) {
    if (path_of_input(input) != "-") continue;
    copy_standard_input(spool, check);
    input = (input == "-" ? "stdin=" : input.substr(0, input.size() - 1)) + spool.string();
  }
  return inputs;
}

bool is_validation_document(uint64_t document_key, double valid_fraction) {
  return static_cast<double>(document_key >> 11) * 0x1p-53 < valid_fraction;
}

std::unique_ptr<tokenizer::Tokenizer> train_tokenizer(text::TextReader& reader,
                                                      const BpeSample& sample) {
  tokenizer::BpeTrainer trainer;
  {
    Progress progress("sampling text for the vocabulary", reader.total_bytes(), "bytes");
    EvenSample even(reader, sample.bytes);
    std::vector<text::TextPiece> pieces;
    size_t bytes = 0;
    const auto flush = [&] {
      parallel_for(pieces.size(), sample.threads, [&](size_t i) { trainer.add(pieces[i].text); });
      pieces.clear();
      bytes = 0;
    };
    uint64_t read = 0;
    bool at_beginning = true, is_held_out = false;
    for (text::TextPiece piece; reader.next(piece);) {
      if (at_beginning) {
        is_held_out = piece.split == text::Split::kValid || piece.split == text::Split::kTest ||
                      is_validation_document(document_key(piece.text), sample.valid_fraction);
      }
      at_beginning = piece.ends_document;
      progress.advance(reader.bytes_read() - read);
      read = reader.bytes_read();
      if (is_held_out || !even.wants(piece)) continue;
      bytes += piece.text.size();
      pieces.push_back(std::move(piece));
      if (bytes >= 16 << 20) flush();
    }
    flush();
  }
  log_info("learning a vocabulary of {} tokens", sample.vocabulary_size);
  return trainer.train(sample.vocabulary_size);
}

}  // namespace ballast::tokens
