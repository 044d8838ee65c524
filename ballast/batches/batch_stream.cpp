// SPDX-License-Identifier: Apache-2.0
#include "ballast/batches/batch_stream.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/index_permutation.h"
#include "ballast/system/random.h"

namespace ballast::batches {
namespace {

std::vector<double> weights_of(const std::vector<WeightedSource>& sources) {
  std::vector<double> weights;
  for (const WeightedSource& source : sources) weights.push_back(source.weight);
  return weights;
}

void check_shape(const BatchShape& shape) {
  if (shape.context < 1) fail("the context is {} tokens, but must be at least 1", shape.context);
  if (shape.global_batch < 1)
    fail("the batch is {} rows, but must be at least 1", shape.global_batch);
  if (shape.micro_steps < 1 || shape.global_batch % shape.micro_steps != 0) {
    fail("a batch of {} rows cannot be divided into {} micro-steps", shape.global_batch,
         shape.micro_steps);
  }
}

void check_source(const tokens::TokenSource& source, const tokens::TokenSource& first,
                  int64_t context) {
  if (source.size() <= static_cast<uint64_t>(context)) {
    fail(
        "{} has {} tokens, too few for a context of {} (which takes {}): use more text or a "
        "shorter "
        "context",
        source.info().name, source.size(), context, context + 1);
  }
  const auto& one = first.info().tokenizer_fingerprint;
  const auto& other = source.info().tokenizer_fingerprint;
  if (one && other && *one != *other) {
    fail("{} and {} were prepared with different tokenizers: prepare both with the same",
         first.info().name, source.info().name);
  }
}

}  // namespace

BatchStream::BatchStream(std::vector<WeightedSource> sources, const BatchShape& shape)
    : sources_(std::move(sources)), shape_(shape), mix_(weights_of(sources_)) {
  check_shape(shape);
  for (const WeightedSource& source : sources_) {
    check_source(*source.tokens, *sources_.front().tokens, shape.context);
  }
}

Batch BatchStream::at(uint64_t step, int64_t micro_step, int64_t rank, int64_t world) const {
  if (micro_step < 0 || micro_step >= shape_.micro_steps || rank < 0 || rank >= world) {
    throw std::invalid_argument(fmt::format("BatchStream::at: micro-step {} of {}, rank {} of {}",
                                            micro_step, shape_.micro_steps, rank, world));
  }
  const int64_t micro_rows = shape_.global_batch / shape_.micro_steps;
  if (micro_rows % world != 0) {
    fail(
        "{} workers cannot share the {} rows of a micro-step (a batch of {} in {} micro-steps) "
        "evenly: choose a number of workers that divides them",
        world, micro_rows, shape_.global_batch, shape_.micro_steps);
  }
  const int64_t rows = micro_rows / world, context = shape_.context;
  Batch batch{.rows = rows, .context = context, .inputs = {}, .targets = {}};
  batch.inputs.resize(static_cast<size_t>(rows * context));
  batch.targets.resize(batch.inputs.size());
  const uint64_t first = step * static_cast<uint64_t>(shape_.global_batch) +
                         static_cast<uint64_t>(micro_step * micro_rows + rank * rows);
  const auto width = static_cast<size_t>(context);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    read_row(window(first + row), std::span(batch.inputs).subspan(row * width, width),
             std::span(batch.targets).subspan(row * width, width));
  }
  return batch;
}

BatchStream::Window BatchStream::window(uint64_t row) const {
  const auto [source, index] = mix_(row);
  const uint64_t windows = windows_per_epoch(source), size = sources_[source].tokens->size();
  const uint64_t epoch = index / windows;
  const IndexPermutation order(windows, random_bits(shape_.seed, "epoch order", source, epoch));
  const uint64_t offset = random_bits(shape_.seed, "epoch offset", source, epoch) % size;
  const uint64_t begin = offset + order(index % windows) * static_cast<uint64_t>(shape_.context);
  return {.source = source, .epoch = epoch, .first_token = begin % size};
}

void BatchStream::read_row(const Window& window, std::span<int64_t> inputs,
                           std::span<int64_t> targets) const {
  const tokens::TokenSource& source = *sources_[window.source].tokens;
  const size_t to_end = std::min<uint64_t>(inputs.size(), source.size() - window.first_token);
  source.read(window.first_token, inputs.first(to_end));
  source.read(0, inputs.subspan(to_end));
  std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
  source.read((window.first_token + inputs.size()) % source.size(), targets.last(1));
}

uint64_t BatchStream::windows_per_epoch(size_t source) const {
  return sources_.at(source).tokens->size() / static_cast<uint64_t>(shape_.context);
}

double BatchStream::epochs(size_t source, uint64_t steps) const {
  const uint64_t rows = mix_.count(source, steps * static_cast<uint64_t>(shape_.global_batch));
  return static_cast<double>(rows) / static_cast<double>(windows_per_epoch(source));
}

}  // namespace ballast::batches
