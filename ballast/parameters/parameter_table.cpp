// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/parameter_table.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "ballast/system/random.h"

namespace ballast {

using at::Tensor;

const Parameter& ParameterTable::declare(SegmentSpec spec) {
  for (const Segment& other : segments_) {
    if (other.name == spec.name) throw std::logic_error("parameter declared twice: " + spec.name);
  }
  Segment segment;
  static_cast<SegmentSpec&>(segment) = std::move(spec);
  segment.size = 1;
  for (int64_t extent : segment.shape) segment.size *= extent;
  segments_.push_back(std::move(segment));
  return parameters_.emplace_back();
}

void ParameterTable::allocate(const TableOptions& options) {
  int64_t total = 0;
  groups_.clear();
  for (const bool decay : {true, false}) {
    const int64_t begin = total;
    for (Segment& segment : segments_) {
      if ((segment.decay && !segment.frozen) != decay) continue;
      segment.offset = total;
      total += (segment.size + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (total > begin) groups_.push_back({begin, total, decay});
  }
  const auto buffer = [&](at::ScalarType dtype) {
    return at::zeros({total}, at::device(options.device).dtype(dtype));
  };
  working_ = buffer(options.working);
  master_ = working_;
  if (options.trainable) {
    if (options.master != options.working) master_ = buffer(options.master);
    gradient_ = buffer(options.working);
    first_moment_ = buffer(options.master);
    second_moment_ = buffer(options.master);
  }
  for (size_t i = 0; i < segments_.size(); ++i) {
    parameters_[i].value = view(working_, segments_[i]);
    if (options.trainable && !segments_[i].frozen)
      parameters_[i].gradient = view(gradient_, segments_[i]);
  }
}

namespace {

// Element i is drawn from two hashes of (key, i): independent of threads and of other elements.
void fill_normal(float* out, int64_t size, uint64_t key, double deviation) {
  at::parallel_for(0, size, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<float>(deviation *
                                  RandomStream(key, "normal", static_cast<uint64_t>(i)).normal());
    }
  });
}

}  // namespace

void ParameterTable::initialize(uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (const Segment& segment : segments_) {
    Tensor target = view(master_, segment);
    using Kind = Initialization::Kind;
    if (segment.initialization.kind == Kind::kNormal) {
      Tensor values = at::empty(segment.shape, at::kFloat);
      fill_normal(values.data_ptr<float>(), segment.size, random_bits(seed, segment.name),
                  segment.initialization.deviation);
      target.copy_(values);
    } else {
      target.fill_(segment.initialization.kind == Kind::kOne ? 1 : 0);
    }
  }
  copy_master_to_working();
}

const Segment& ParameterTable::segment(const std::string& name) const {
  for (const Segment& segment : segments_) {
    if (segment.name == name) return segment;
  }
  throw std::out_of_range("no parameter is called " + name);
}

Tensor ParameterTable::view(const Tensor& flat, const Segment& segment) const {
  return flat.narrow(0, segment.offset, segment.size).view(segment.shape);
}

int64_t ParameterTable::num_parameters() const {
  int64_t count = 0;
  for (const Segment& segment : segments_) count += segment.size;
  return count;
}

void ParameterTable::copy_master_to_working() {
  const at::NoGradGuard no_grad;
  if (!master_.is_same(working_)) working_.copy_(master_);
}

}  // namespace ballast
