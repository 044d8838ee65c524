// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/encode_documents.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ballast/system/checksum.h"
#include "ballast/system/parallel.h"

namespace ballast::tokens {
namespace {

constexpr size_t kChunkBytes = 1 << 18;  // short documents are encoded together, this many bytes
constexpr size_t kKeyBytes = 4096;
constexpr size_t kMaxThreads = 30;  // more than one reader can feed; bounds the memory of chunks

// Some pieces of text and, once done, their tokens.
struct Chunk {
  std::vector<text::TextPiece> pieces;
  std::vector<uint64_t> keys;  // of each piece's document
  bool continues = false;      // the first piece goes on with the document of the chunk before
  size_t count = 0;            // pieces in use: the rest keep their memory for the next round
  std::vector<tokenizer::TokenId> ids;
  std::vector<size_t> ends;  // ids after each piece
  std::exception_ptr error;
  bool done = false;

  void encode(const tokenizer::Tokenizer& tokenizer) {
    ids.clear();
    ends.clear();
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) bytes += pieces[i].text.size();
    ids.reserve(bytes);  // hardly ever are there more tokens; pages not used cost nothing
    for (size_t i = 0; i < count; ++i) {
      if (i == 0 ? continues : !pieces[i - 1].ends_document) {
        tokenizer.encode_continued(pieces[i].text, ids);
      } else {
        tokenizer.encode(pieces[i].text, ids);
      }
      ends.push_back(ids.size());
    }
  }
};

// Threads that encode chunks; destroying it stops them after the chunk they are at.
class Encoders {
 public:
  Encoders(const tokenizer::Tokenizer& tokenizer, size_t threads) : tokenizer_(tokenizer) {
    for (size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this](std::stop_token stop) { work(stop); });
    }
  }

  void submit(Chunk& chunk) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(&chunk);
    }
    submitted_.notify_one();
  }

  void wait_for(Chunk& chunk) {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return chunk.done; });
    if (chunk.error) std::rethrow_exception(chunk.error);
  }

 private:
  void work(std::stop_token stop) {
    for (;;) {
      Chunk* chunk = nullptr;
      {
        std::unique_lock lock(mutex_);
        if (!submitted_.wait(lock, stop, [&] { return !waiting_.empty(); })) return;
        if (stop.stop_requested()) return;
        chunk = std::exchange(waiting_.front(), nullptr);
        waiting_.pop_front();
      }
      try {
        chunk->encode(tokenizer_);
      } catch (...) {
        chunk->error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        chunk->done = true;
      }
      finished_.notify_one();
    }
  }

  const tokenizer::Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::condition_variable_any submitted_;
  std::condition_variable finished_;
  std::deque<Chunk*> waiting_;
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

// Fills chunks from the reader, keeping track of which document a piece belongs to.
class ChunkReader {
 public:
  explicit ChunkReader(text::TextReader& reader) : reader_(reader) {}

  bool fill(Chunk& chunk) {
    chunk.count = 0;
    chunk.keys.clear();
    chunk.done = false;
    chunk.continues = !at_beginning_;
    for (size_t bytes = 0; bytes < kChunkBytes;) {
      if (chunk.count == chunk.pieces.size()) chunk.pieces.emplace_back();
      text::TextPiece& piece = chunk.pieces[chunk.count];
      if (!reader_.next(piece)) break;
      if (at_beginning_) key_ = document_key(piece.text);
      at_beginning_ = piece.ends_document;
      chunk.keys.push_back(key_);
      chunk.count += 1;
      bytes += piece.text.size() + sizeof(text::TextPiece);
    }
    return chunk.count > 0;
  }

 private:
  text::TextReader& reader_;
  bool at_beginning_ = true;
  uint64_t key_ = 0;
};

void hand_over(const Chunk& chunk, const std::function<void(const EncodedPiece&)>& take) {
  const std::span<const tokenizer::TokenId> ids(chunk.ids);
  size_t begin = 0;
  for (size_t i = 0; i < chunk.count; ++i) {
    const text::TextPiece& piece = chunk.pieces[i];
    take({.ids = ids.subspan(begin, chunk.ends[i] - begin),
          .source_bytes = piece.text.size(),
          .document_key = chunk.keys[i],
          .ends_document = piece.ends_document,
          .domain = piece.domain,
          .nats = piece.nats,
          .split = piece.split,
          .file = piece.file});
    begin = chunk.ends[i];
  }
}

}  // namespace

uint64_t document_key(std::string_view beginning) {
  return checksum(beginning.substr(0, kKeyBytes));
}

void encode_documents(text::TextReader& reader, const tokenizer::Tokenizer& tokenizer,
                      size_t threads, const std::function<void(const EncodedPiece&)>& take) {
  threads = std::min(threads ? threads : num_cores(), kMaxThreads);
  ChunkReader chunks(reader);
  // A ring: the oldest chunk is waited for only when all are in use. Two more than there are
  // threads keep them busy while this one reads and writes.
  std::vector<Chunk> ring(threads + 2);
  Encoders encoders(tokenizer, threads);
  size_t submitted = 0, taken = 0;
  for (bool more = true; more || taken < submitted;) {
    if (more && submitted - taken < ring.size()) {
      Chunk& chunk = ring[submitted % ring.size()];
      more = chunks.fill(chunk);
      if (!more) continue;
      encoders.submit(chunk);
      ++submitted;
    } else {
      Chunk& chunk = ring[taken++ % ring.size()];
      encoders.wait_for(chunk);
      hand_over(chunk, take);
    }
  }
}

}  // namespace ballast::tokens
