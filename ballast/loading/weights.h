// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/model/language_model.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::loading {

// What the tensors of a flat buffer are called: weights by the parameter's name (no prefix), other
// buffers "<prefix>/<name>".
std::string tensor_name(const std::string& prefix, const std::string& parameter);

// Which segments, by their owners and by what moves them.
struct SegmentChoice {
  std::string prefix = {};
  parameters::Owner first = parameters::Owner::kShard, last = parameters::Owner::kExpert;
  parameters::Update first_update = parameters::Update::kAdam,
                     last_update = parameters::Update::kNone;

  bool has(const parameters::Segment& segment) const {
    return first <= segment.owner && segment.owner <= last && first_update <= segment.update &&
           segment.update <= last_update;
  }
};

// What a table's buffers are called in a checkpoint, and which segments are in each.
SegmentChoice all_weights();     // by their names alone
SegmentChoice frozen_weights();  // of these, what is not trained
SegmentChoice average();         // "average", of what is trained
SegmentChoice first_moments();   // "adam.first"
SegmentChoice second_moments();  // "adam.second"
SegmentChoice momenta();         // "muon.momentum", in the buffer of first moments

// A flat buffer's segments as named host tensors, ready to be written. Tensors on a GPU are copied
// to `host` first, which must outlive the views. REQUIRES: no part of them is elsewhere.
std::vector<checkpoint::TensorView> segment_views(const parameters::ParameterTable& table,
                                                  const at::Tensor& flat,
                                                  const SegmentChoice& choice, at::Tensor& host);

// A contiguous tensor on the CPU, to be written; it must outlive the view.
checkpoint::TensorView view_of(const std::string& name, const at::Tensor& tensor);

// Checks that a checkpoint has what a table declares. The table need not be allocated. Throws
// UserError naming the experts that are missing, or a tensor that is missing or of another shape.
void check_segments(const checkpoint::Checkpoint& checkpoint,
                    const parameters::ParameterTable& table, const SegmentChoice& choice);
// Fills a flat buffer from a checkpoint, with what it holds of each tensor. Throws
// UserError as check_segments(), and naming a tensor with numbers that are not finite.
void load_segments(const checkpoint::Checkpoint& checkpoint,
                   const parameters::ParameterTable& table, const at::Tensor& flat,
                   const SegmentChoice& choice);
// One segment of it: the tensor called `name`, or the part of it that `slice` tells.
void load_segment(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                  const at::Tensor& target, const std::optional<parameters::Slice>& slice = {});

// The average prices of the BASE layers, called layer.6.prices.
std::vector<checkpoint::TensorView> price_views(const model::LanguageModel& model);
// What their solvers start from in training, called start_prices/layer.6. Where a checkpoint has
// none it is the average.
std::vector<checkpoint::TensorView> start_price_views(const model::LanguageModel& model);
void load_prices(const checkpoint::Checkpoint& checkpoint, const model::LanguageModel& model);

}  // namespace ballast::loading
