// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/parameter_table.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <set>
#include <stdexcept>
#include <utility>

#include "ballast/kernels/parallel_ranges.h"
#include "ballast/parameters/name_pattern.h"
#include "ballast/system/random.h"

namespace ballast::parameters {

using at::Tensor;

SegmentSpec divided(SegmentSpec full, const Division& division) {
  if (division.shards == 1) return full;
  SegmentSpec part = std::move(full);
  part.slice = {part.shape, division.dim,
                division.dim == 0 ? part.matrices : std::vector<int64_t>(), division.shard,
                division.shards};
  part.shape = part.slice->shape();
  part.owner = Owner::kShard;
  return part;
}

size_t ParameterTable::add(SegmentSpec spec) {
  if (!names_.insert(spec.name).second)
    throw std::logic_error("parameter declared twice: " + spec.name);
  Segment segment;
  static_cast<SegmentSpec&>(segment) = std::move(spec);
  segment.block = block_;
  segment.size = 1;
  for (int64_t extent : segment.shape) segment.size *= extent;
  segments_.push_back(std::move(segment));
  return segments_.size() - 1;
}

const kernels::Parameter& ParameterTable::declare(SegmentSpec spec) {
  return declared_.emplace_back(kernels::Parameter{}, add(std::move(spec))).parameter;
}

const kernels::Parameter& ParameterTable::declare_stack(std::vector<SegmentSpec> specs) {
  const size_t first = segments_.size(), count = specs.size();
  for (SegmentSpec& spec : specs) add(std::move(spec));
  return declared_.emplace_back(kernels::Parameter{}, first, count, true).parameter;
}

std::string ParameterTable::freeze(const std::vector<std::string>& patterns) {
  const auto is_named = [&](size_t i) { return fits_any(segments_[i].name, patterns); };
  for (const Declared& declared : declared_) {
    for (size_t i = declared.first; i < declared.first + declared.count; ++i)
      if (is_named(i) != is_named(declared.first)) return segments_[i].name;
  }
  for (size_t i = 0; i < segments_.size(); ++i)
    segments_[i].frozen = segments_[i].frozen || is_named(i);
  return "";
}

Update update_of(const Segment& segment, bool muon) {
  if (segment.frozen) return Update::kNone;
  // Embeddings decay too and lie outside of the blocks; routers' matrices do not decay.
  const bool is_within =
      segment.block || segment.owner == Owner::kRouter || segment.owner == Owner::kExpert;
  return muon && is_within && segment.decay && segment.shape.size() == 2 ? Update::kMuon
                                                                         : Update::kAdam;
}

namespace {

// How a segment learns: whether it decays, and its rate.
std::pair<bool, double> rule_of(const Segment& segment) { return {segment.decay, segment.rate}; }

}  // namespace

void ParameterTable::lay_out(Update update, Owner owner, int64_t& total) {
  const auto is_here = [&](const Segment& segment) {
    return segment.update == update && segment.owner == owner;
  };
  std::set<std::pair<bool, double>, std::greater<>> rules;  // decay comes first
  for (const Segment& segment : segments_)
    if (is_here(segment)) rules.insert(rule_of(segment));
  for (const auto& [decay, rate] : rules) {
    const int64_t begin = total;
    for (Segment& segment : segments_) {
      if (!is_here(segment) || rule_of(segment) != std::pair(decay, rate)) continue;
      segment.offset = total;
      total += (segment.size + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (update != Update::kNone) groups_.push_back({begin, total, owner, decay, rate, update});
  }
}

int64_t ParameterTable::lay_out() {
  int64_t total = 0;
  groups_.clear();
  for (const Update update : {Update::kAdam, Update::kMuon, Update::kNone}) {
    for (const Owner owner : {Owner::kShard, Owner::kShared, Owner::kRouter, Owner::kExpert}) {
      Range& range = ranges_.at(static_cast<size_t>(update)).at(static_cast<size_t>(owner));
      range.begin = total;
      lay_out(update, owner, total);
      range.end = total;
    }
  }
  return total;
}

void ParameterTable::allocate(const TableOptions& options) {
  for (Segment& segment : segments_) segment.update = update_of(segment, options.muon);
  const int64_t total = lay_out();
  const auto end_of = [&](Update update) {
    return range(Owner::kShard, Owner::kExpert, update).end;
  };
  const int64_t of_adam = end_of(Update::kAdam), trained = end_of(Update::kMuon);
  const auto buffer = [&](int64_t size, at::ScalarType dtype) {
    return at::zeros({size}, at::device(options.device).dtype(dtype));
  };
  std::vector<DividedRange> divided;
  for (const StateDivision& division : options.divisions)
    divided.push_back({range(division.first, division.last), division.rank, division.workers});
  held_ = HeldState(total, divided,
                    options.chunk_bytes / static_cast<int64_t>(c10::elementSize(options.working)));
  const auto state = [&](int64_t end) { return buffer(held_.size({0, end}), options.master); };
  working_ = buffer(total, options.working);
  master_ = working_;
  if (options.trainable) {
    if (options.master != options.working) master_ = state(total);
    gradient_ = buffer(trained, options.working);
    first_moment_ = state(trained);
    second_moment_ = state(of_adam);
    if (options.average) average_ = state(trained);
  }
  for (Declared& declared : declared_) {
    declared.parameter.value = view(working_, declared);
    if (options.trainable && !segments_[declared.first].frozen)
      declared.parameter.gradient = view(gradient_, declared);
  }
  if (options.trainable && options.writes_gradients) let_passes_write();
}

void ParameterTable::let_passes_write() {
  const auto group_of = [&](const Segment& segment) {
    return std::ranges::find_if(groups_, [&](const Group& group) {
      return group.begin <= segment.offset && segment.offset < group.end;
    });
  };
  for (const Segment& segment : segments_) {
    if (segment.multiplied && segment.update == Update::kAdam) group_of(segment)->forgotten = true;
  }
  for (Declared& declared : declared_) {
    const Segment& segment = segments_[declared.first];
    if (segment.update != Update::kAdam || !group_of(segment)->forgotten) continue;
    kernels::Parameter& parameter = declared.parameter;
    if (!segment.multiplied) {
      cleared_.push_back(parameter.gradient);
      continue;
    }
    parameter.is_unwritten = at::zeros({}, at::kBool);
    written_.emplace_back(parameter.gradient, parameter.is_unwritten);
  }
}

void ParameterTable::forget_gradients() const {
  for (const kernels::GradientSum& sum : written_) sum.is_unwritten.fill_(true);
  for (const Tensor& gradient : cleared_) gradient.zero_();
}

void ParameterTable::settle_gradients() const {
  for (const kernels::GradientSum& sum : written_) (void)sum.begun();
}

std::vector<ParameterTable::Entry> ParameterTable::entries() const {
  std::vector<Entry> entries;
  for (const Declared& declared : declared_)
    entries.push_back({segments_[declared.first], declared.parameter.value,
                       static_cast<int64_t>(declared.count), declared.stacked});
  return entries;
}

void ParameterTable::adopt(const std::vector<kernels::Parameter>& parameters) {
  if (parameters.size() != declared_.size())
    throw std::logic_error("there are " + std::to_string(declared_.size()) + " parameters, and " +
                           std::to_string(parameters.size()) + " were given");
  for (size_t i = 0; i < parameters.size(); ++i) declared_[i].parameter = parameters[i];
}

Tensor ParameterTable::view(const Tensor& flat, const Declared& declared) const {
  const Segment& first = segments_[declared.first];
  const Tensor one = view(flat, first);
  if (!declared.stacked) return one;
  std::vector<int64_t> shape = first.shape, strides = one.strides().vec();
  shape.insert(shape.begin(), static_cast<int64_t>(declared.count));
  strides.insert(strides.begin(), (first.size + kAlignment - 1) / kAlignment * kAlignment);
  return flat.as_strided(shape, strides, first.offset);
}

namespace {

// Element i of the whole tensor is drawn from two hashes of (key, i): independent of threads, of
// other elements, and of who holds it.
Tensor normal_numbers(const SegmentSpec& spec, uint64_t key, double deviation) {
  const Tensor values = at::empty(spec.shape, at::kFloat);
  auto* out = values.mutable_data_ptr<float>();
  kernels::parallel_ranges(values.numel(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto whole = static_cast<uint64_t>(spec.slice ? spec.slice->full_index(i) : i);
      out[i] = static_cast<float>(deviation * RandomStream(key, "normal", whole).normal());
    }
  });
  return values;
}

// Of a shard: made as a whole, then cut.
Tensor orthogonal_rows(const SegmentSpec& spec, uint64_t key) {
  if (spec.slice) {
    SegmentSpec whole = spec;
    whole.shape = spec.slice->full_shape;
    whole.slice.reset();
    return spec.slice->take(orthogonal_rows(whole, key).contiguous());
  }
  const Tensor values = normal_numbers(spec, key, 1.0).to(at::kDouble);
  const bool wide = spec.shape[0] <= spec.shape[1];
  const auto [q, r] = at::linalg_qr(wide ? values.t() : values);
  // The sign of R's diagonal makes the result unique: that of the matrix, not of the library.
  const Tensor columns = q * r.diagonal().sign();
  return (wide ? columns.t() : columns) * spec.initialization.gain;
}

}  // namespace

void ParameterTable::initialize(uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (const Segment& segment : segments_) {
    using Kind = Initialization::Kind;
    if (segment.initialization.kind == Kind::kNormal) {
      put_weights(segment, normal_numbers(segment, random_bits(seed, segment.name),
                                          segment.initialization.deviation));
    } else if (segment.initialization.kind == Kind::kOrthogonal) {
      put_weights(segment, orthogonal_rows(segment, random_bits(seed, segment.name)));
    } else {
      const double value = segment.initialization.kind == Kind::kOne ? 1 : 0;
      put_weights(segment, at::full({1}, value, at::kFloat).expand(segment.shape));
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
  return part(flat, {segment.offset, segment.offset + segment.size}).view(segment.shape);
}

bool ParameterTable::is_whole(const Tensor& flat) const {
  return held_.is_whole() || flat.is_same(working_) || flat.is_same(gradient_);
}

Tensor ParameterTable::part(const Tensor& flat, const Range& range) const {
  if (is_whole(flat)) return range.of(flat);
  const std::optional<int64_t> place = held_.place(range);
  if (!place) {
    throw std::logic_error("state of elements " + std::to_string(range.begin) + " to " +
                           std::to_string(range.end) + " is not here in one piece");
  }
  return flat.narrow(0, *place, range.size());
}

void ParameterTable::put(const Tensor& flat, const Segment& segment, const Tensor& values) const {
  const at::NoGradGuard no_grad;
  const Range whole{segment.offset, segment.offset + segment.size};
  if (is_whole(flat)) {
    view(flat, segment).copy_(values);
    return;
  }
  const Tensor elements = values.reshape({-1});
  for (const Range& range : held_.within(whole))
    part(flat, range).copy_(elements.narrow(0, range.begin - whole.begin, range.size()));
}

void ParameterTable::put_weights(const Segment& segment, const Tensor& values) const {
  put(master_, segment, values);
  if (!is_whole(master_)) put(working_, segment, values);
}

ParameterTable::Range ParameterTable::range(Owner first, Owner last, Update update) const {
  const std::array<Range, 4>& of_update = ranges_.at(static_cast<size_t>(update));
  return {of_update.at(static_cast<size_t>(first)).begin,
          of_update.at(static_cast<size_t>(last)).end};
}

std::vector<ParameterTable::Range> ParameterTable::ranges(Owner first, Owner last,
                                                          Update last_update) const {
  std::vector<Range> some;
  for (const Update update : {Update::kAdam, Update::kMuon, Update::kNone}) {
    const Range here = range(first, last, update);
    if (update <= last_update && here.size() > 0) some.push_back(here);
  }
  return some;
}

int64_t ParameterTable::num_parameters() const {
  int64_t count = 0;
  for (const Segment& segment : segments_) count += segment.size;
  return count;
}

void ParameterTable::copy_master_to_working() {
  const at::NoGradGuard no_grad;
  if (!master_.is_same(working_)) {
    for (const Range& range : held_.within({0, working_.numel()}))
      part(working_, range).copy_(part(master_, range));
  }
  if (!average_.defined()) return;
  for (const Range& range : held_.within({0, gradient_.numel()}))
    part(average_, range).copy_(part(master_, range));
}

}  // namespace ballast::parameters
