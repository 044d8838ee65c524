// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/document_splitter.h"

#include <algorithm>
#include <string_view>

namespace ballast::text {
DocumentSplitter::DocumentSplitter(ByteSource& source, size_t piece_bytes)
    : source_(source),
      piece_bytes_(piece_bytes),
      read_bytes_(std::max<size_t>(1, piece_bytes / 4)) {}

bool DocumentSplitter::next(TextPiece& piece) {
  for (;;) {
    if (const auto separator = find_separator()) {
      const bool empty = separator->text_end == begin_ && !in_document_;
      if (!empty) take(piece, separator->text_end);
      begin_ = searched_ = cut_searched_ = separator->next_begin;
      in_document_ = false;
      if (empty) continue;
      piece.ends_document = true;
      return true;
    }
    if (source_ended_) {
      if (begin_ == buffer_.size()) return false;
      take(piece, buffer_.size());
      piece.ends_document = true;
      return true;
    }
    if (buffer_.size() - begin_ > piece_bytes_) {
      if (const size_t cut = find_cut()) {
        take(piece, cut);
        in_document_ = true;
        piece.ends_document = false;
        return true;
      }
    }
    refill();
  }
}

std::optional<DocumentSplitter::Separator> DocumentSplitter::find_separator() {
  const size_t size = buffer_.size();
  for (;;) {
    const size_t at = buffer_.find(kDocumentSeparator, searched_);
    if (at == buffer_.npos) {
      searched_ = std::max(searched_, size - std::min(size, kDocumentSeparator.size() - 1));
      return std::nullopt;
    }
    searched_ = at;
    const size_t after = at + kDocumentSeparator.size();
    const std::string_view rest = std::string_view(buffer_).substr(after);
    if ((rest.empty() || rest == "\r") && !source_ended_) return std::nullopt;  // look again later
    const size_t own_break = rest.starts_with('\n') ? 1 : rest.starts_with("\r\n") ? 2 : 0;
    const bool line_starts = at == begin_ || buffer_[at - 1] == '\n';
    if (line_starts && (own_break > 0 || rest.empty())) {
      size_t text_end = at;
      if (text_end > begin_) --text_end;
      if (text_end > begin_ && text_end < at && buffer_[text_end - 1] == '\r') --text_end;
      return Separator{text_end, after + own_break};
    }
    ++searched_;
  }
}

size_t DocumentSplitter::find_cut() {
  const std::string_view text(buffer_);
  const size_t lowest = std::max(begin_ + 1, cut_searched_);
  for (size_t at = text.size() - 1; at >= lowest; --at) {
    if (!may_cut(text, begin_, at)) continue;
    // A line break may yet turn out to belong to a separator: then nothing would be left to end
    // with.
    const std::string_view rest = text.substr(at);
    const size_t breaks = rest.starts_with("\r\n") ? 2 : rest.starts_with('\n') ? 1 : 0;
    if (rest.size() < 3 || (breaks > 0 && rest[breaks] == '<')) continue;
    return at;
  }
  cut_searched_ = std::max(lowest, text.size() - std::min<size_t>(text.size(), 3));
  return text.size() - begin_ > kLongestPiece ? forced_cut() : 0;
}

// In the middle, so that a separator which is still being read stays whole: at the start of a
// character, and not where a separator's text would come to stand at the start of a piece.
size_t DocumentSplitter::forced_cut() const {
  const size_t at = character_start(buffer_, begin_ + (buffer_.size() - begin_) / 2);
  return buffer_[at] == '<' ? character_start(buffer_, at - 1) : at;
}

void DocumentSplitter::refill() {
  buffer_.erase(0, begin_);
  searched_ -= std::min(searched_, begin_);
  cut_searched_ -= std::min(cut_searched_, begin_);
  begin_ = 0;
  const size_t old_size = buffer_.size();
  buffer_.resize(old_size + read_bytes_);
  const size_t filled = source_.read({buffer_.data() + old_size, read_bytes_});
  buffer_.resize(old_size + filled);
  source_ended_ = filled < read_bytes_;
}

void DocumentSplitter::take(TextPiece& piece, size_t end) {
  piece.text.assign(buffer_, begin_, end - begin_);
  begin_ = cut_searched_ = end;
  searched_ = std::max(searched_, begin_);
}

}  // namespace ballast::text
