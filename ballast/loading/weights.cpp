// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "ballast/system/error.h"

namespace ballast::loading {
namespace {

using checkpoint::Dtype;

// What numbers are called in a file, and in memory.
constexpr std::array<std::pair<Dtype, at::ScalarType>, 4> kTypes = {{{Dtype::kF32, at::kFloat},
                                                                     {Dtype::kF64, at::kDouble},
                                                                     {Dtype::kBF16, at::kBFloat16},
                                                                     {Dtype::kF16, at::kHalf}}};

Dtype dtype_of(const at::Tensor& tensor) {
  for (const auto& [dtype, scalar_type] : kTypes) {
    if (scalar_type == tensor.scalar_type()) return dtype;
  }
  throw std::logic_error("parameters are fp32, fp64, bf16 or fp16");
}

at::ScalarType scalar_type_of(Dtype wanted, const std::string& name) {
  for (const auto& [dtype, scalar_type] : kTypes) {
    if (dtype == wanted) return scalar_type;
  }
  fail("tensor {} has dtype {}; want F32, F64, BF16 or F16", name, checkpoint::dtype_name(wanted));
}

// Says which experts of which layer a checkpoint lacks, rather than one of their many tensors.
void check_experts(const checkpoint::Checkpoint& checkpoint,
                   const parameters::ParameterTable& table, const SegmentChoice& choice) {
  constexpr std::string_view kMark = ".expert.";  // layer.6.expert.17.sublayer.0.up.weight
  std::string layer;
  std::set<int64_t> missing;
  for (const parameters::Segment& segment : table.segments()) {
    if (segment.owner != parameters::Owner::kExpert || !choice.has(segment) ||
        checkpoint.has(tensor_name(choice.prefix, segment.name)))
      continue;
    const size_t mark = segment.name.find(kMark);
    if (layer.empty()) layer = segment.name.substr(0, mark);
    if (segment.name.substr(0, mark) == layer)
      missing.insert(std::stoll(segment.name.substr(mark + kMark.size())));
  }
  if (missing.empty()) return;
  const std::vector<int64_t> named(missing.begin(),
                                   std::next(missing.begin(), std::min(missing.size(), size_t{8})));
  fail("checkpoint {} lacks expert{} {}{} of {}, which its config has (use another checkpoint)",
       checkpoint.path().string(), missing.size() > 1 ? "s" : "", fmt::join(named, ", "),
       missing.size() > named.size() ? fmt::format(" and {} more", missing.size() - named.size())
                                     : "",
       layer);
}

void check_shape(const checkpoint::Checkpoint& checkpoint, const std::string& name, Dtype dtype,
                 const std::vector<int64_t>& stored, const std::vector<int64_t>& wanted) {
  if (stored == wanted) return;
  fail("{}: tensor {} is {}, but the model wants {}: this is a checkpoint of another configuration",
       checkpoint.path().string(), name, checkpoint::describe(dtype, stored),
       checkpoint::describe(dtype, wanted));
}

// The least and the largest are NaN where one number is.
void check_finite(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                  const at::Tensor& values) {
  if (values.numel() == 0) return;
  const auto [least, largest] = at::aminmax(values);
  if (std::isfinite(least.item<double>()) && std::isfinite(largest.item<double>())) return;
  fail(
      "{}: tensor {} holds numbers that are not finite (NaN or infinity), and so would all that is "
      "computed with it: use an earlier checkpoint",
      checkpoint.path().string(), name);
}

}  // namespace

using parameters::Owner;
using parameters::Update;

SegmentChoice all_weights() { return {}; }
SegmentChoice frozen_weights() {
  return {"", Owner::kShard, Owner::kExpert, Update::kNone, Update::kNone};
}
SegmentChoice average() {
  return {"average", Owner::kShard, Owner::kExpert, Update::kAdam, Update::kMuon};
}
SegmentChoice first_moments() {
  return {"adam.first", Owner::kShard, Owner::kExpert, Update::kAdam, Update::kAdam};
}
SegmentChoice second_moments() {
  return {"adam.second", Owner::kShard, Owner::kExpert, Update::kAdam, Update::kAdam};
}
SegmentChoice momenta() {
  return {"muon.momentum", Owner::kShard, Owner::kExpert, Update::kMuon, Update::kMuon};
}

std::string tensor_name(const std::string& prefix, const std::string& parameter) {
  return prefix.empty() ? parameter : prefix + "/" + parameter;
}

checkpoint::TensorView view_of(const std::string& name, const at::Tensor& tensor) {
  return {name,
          dtype_of(tensor),
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

namespace {

// Copies of a GPU's ranges, one after another; tells where each begins there.
at::Tensor copied_to_host(const parameters::ParameterTable& table, const at::Tensor& flat,
                          const SegmentChoice& choice, std::map<int64_t, int64_t>& places) {
  std::vector<parameters::ParameterTable::Range> ranges;
  int64_t size = 0;
  for (const Update update : {Update::kAdam, Update::kMuon, Update::kNone}) {
    if (update < choice.first_update || update > choice.last_update) continue;
    const auto range = table.range(choice.first, choice.last, update);
    if (range.size() == 0) continue;
    ranges.push_back(range);
    places[ranges.back().begin] = size;
    size += ranges.back().size();
  }
  at::Tensor host = at::empty({size}, flat.options().device(at::kCPU));
  for (const parameters::ParameterTable::Range& range : ranges)
    host.narrow(0, places[range.begin], range.size()).copy_(table.part(flat, range));
  return host;
}

}  // namespace

std::vector<checkpoint::TensorView> segment_views(const parameters::ParameterTable& table,
                                                  const at::Tensor& flat,
                                                  const SegmentChoice& choice, at::Tensor& host) {
  std::map<int64_t, int64_t> places;  // in `host`, by where a range begins in whole buffers
  const bool is_here = flat.is_cpu();
  host = is_here ? flat : copied_to_host(table, flat, choice, places);
  std::vector<checkpoint::TensorView> views;
  for (const parameters::Segment& segment : table.segments()) {
    if (!choice.has(segment)) continue;
    at::Tensor values;
    if (is_here) {
      values = table.view(flat, segment);
    } else {
      const auto [begin, place] = *std::prev(places.upper_bound(segment.offset));
      values = host.narrow(0, place + segment.offset - begin, segment.size).view(segment.shape);
    }
    views.push_back(view_of(tensor_name(choice.prefix, segment.name), values));
  }
  return views;
}

void load_segment(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                  const at::Tensor& target, const std::optional<parameters::Slice>& slice) {
  const at::NoGradGuard no_grad;
  const checkpoint::TensorView stored = checkpoint.tensor(name);
  const std::vector<int64_t> wanted = slice ? slice->full_shape : target.sizes().vec();
  check_shape(checkpoint, name, stored.dtype, stored.shape, wanted);
  const at::ScalarType type = scalar_type_of(stored.dtype, name);
  const bool piece = slice && slice->is_one_piece();  // then of the file that much alone is read
  const at::Tensor values = at::empty(piece ? slice->shape() : stored.shape, type);
  const std::byte* from = stored.data.data();
  if (piece) from += slice->full_index(0) * static_cast<int64_t>(values.itemsize());
  std::memcpy(values.mutable_data_ptr(), from, values.nbytes());  // the bytes may be unaligned
  target.copy_(slice && !piece ? slice->take(values) : values);
  check_finite(checkpoint, name, target);
}

void check_segments(const checkpoint::Checkpoint& checkpoint,
                    const parameters::ParameterTable& table, const SegmentChoice& choice) {
  check_experts(checkpoint, table, choice);
  std::map<std::string_view, const checkpoint::TensorEntry*> entries;
  for (const checkpoint::TensorEntry& entry : checkpoint.manifest().tensors)
    entries[entry.name] = &entry;
  for (const parameters::Segment& segment : table.segments()) {
    if (!choice.has(segment)) continue;
    const std::string name = tensor_name(choice.prefix, segment.name);
    const auto found = entries.find(name);
    if (found == entries.end()) checkpoint.tensor(name);  // says that it is missing
    check_shape(checkpoint, name, found->second->dtype, found->second->shape,
                segment.slice ? segment.slice->full_shape : segment.shape);
  }
}

void load_segments(const checkpoint::Checkpoint& checkpoint,
                   const parameters::ParameterTable& table, const at::Tensor& flat,
                   const SegmentChoice& choice) {
  check_segments(checkpoint, table, choice);
  for (const parameters::Segment& segment : table.segments()) {
    if (!choice.has(segment)) continue;
    const std::string name = tensor_name(choice.prefix, segment.name);
    if (table.is_whole(flat)) {
      load_segment(checkpoint, name, table.view(flat, segment), segment.slice);
    } else {
      const at::Tensor values = at::empty(segment.shape, flat.options());
      load_segment(checkpoint, name, values, segment.slice);
      table.put(flat, segment, values);
    }
  }
}

namespace {

// One for each BASE layer, called as `name_of` says.
std::vector<checkpoint::TensorView> views_of_prices(
    const model::LanguageModel& model, std::string (*name_of)(const experts::ExpertLayer&),
    const at::Tensor& (experts::PriceAverage::*which)() const) {
  std::vector<checkpoint::TensorView> views;
  for (const auto& layer : model.expert_layers()) {
    if (const experts::PriceAverage* const prices = layer->router().prices())
      views.push_back(view_of(name_of(*layer), (prices->*which)()));
  }
  return views;
}

std::string name_of_prices(const experts::ExpertLayer& layer) { return layer.name() + ".prices"; }

// As the optimizer's state is called, beside which it lies: it is no weight.
std::string name_of_start(const experts::ExpertLayer& layer) {
  return tensor_name("start_prices", layer.name());
}

}  // namespace

std::vector<checkpoint::TensorView> price_views(const model::LanguageModel& model) {
  return views_of_prices(model, name_of_prices, &experts::PriceAverage::value);
}

std::vector<checkpoint::TensorView> start_price_views(const model::LanguageModel& model) {
  return views_of_prices(model, name_of_start, &experts::PriceAverage::start);
}

void load_prices(const checkpoint::Checkpoint& checkpoint, const model::LanguageModel& model) {
  for (const auto& layer : model.expert_layers()) {
    experts::PriceAverage* const prices = layer->router().prices();
    if (prices == nullptr) continue;
    const auto loaded = [&](const std::string& name) {
      at::Tensor values = at::empty_like(prices->value());
      load_segment(checkpoint, name, values);
      return values;
    };
    prices->set(loaded(name_of_prices(*layer)));
    const std::string start = name_of_start(*layer);
    if (checkpoint.has(start)) prices->set_start(loaded(start));  // else of an earlier program
  }
}

}  // namespace ballast::loading
