// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "ballast/kernels/parameter.h"

namespace ballast {

// Who holds a parameter: every worker, or the one worker its expert lives on.
enum class Owner { kShared, kExpert };

struct Initialization {
  enum class Kind { kZero, kOne, kNormal } kind = Kind::kZero;
  double deviation = 0;  // of kNormal

  static Initialization zero() { return {}; }
  static Initialization one() { return {Kind::kOne, 0}; }
  static Initialization normal(double deviation) { return {Kind::kNormal, deviation}; }
};

// What a module asks for.
struct SegmentSpec {
  std::string name;  // global, e.g. "block.3.attention.qkv.weight"
  std::vector<int64_t> shape;
  Initialization initialization = {};
  Owner owner = Owner::kShared;
  bool decay = false;   // takes part in weight decay
  bool frozen = false;  // has no gradient and is not updated
};

// Where it lies in the flat buffers.
struct Segment : SegmentSpec {
  int64_t offset = 0;  // elements; a multiple of kAlignment
  int64_t size = 0;    // elements
};

struct TableOptions {
  at::Device device = at::kCPU;
  at::ScalarType working = at::kFloat;  // the dtype the model computes in
  at::ScalarType master = at::kFloat;   // the dtype weights and moments are kept in
  bool trainable = true;                // false: no gradients, moments or separate master
};

// All parameters of a model as segments of flat buffers: one for the working copy, one for the
// master weights (the same buffer where the dtypes agree), one for gradients, two for the moments.
// Modules declare segments and keep the returned Parameter, whose tensors exist after allocate().
class ParameterTable {
 public:
  static constexpr int64_t kAlignment = 64;  // elements: every view starts on a cache line

  // The reference stays valid for the table's lifetime. Throws std::logic_error on a repeated name.
  const Parameter& declare(SegmentSpec spec);

  // Lays out all segments (those with decay first) and makes the buffers, filled with zeros.
  void allocate(const TableOptions& options);
  // Fills the weights: element i of a segment is a function of (seed, name, i) alone.
  void initialize(uint64_t seed);

  const std::vector<Segment>& segments() const { return segments_; }
  const Segment& segment(const std::string& name) const;  // throws std::out_of_range
  at::Tensor view(const at::Tensor& flat, const Segment& segment) const;
  int64_t num_parameters() const;  // without padding

  // A range [begin, end) of the flat buffers that shares one decay rule.
  struct Group {
    int64_t begin = 0, end = 0;
    bool decay = false;
  };
  const std::vector<Group>& groups() const { return groups_; }

  const at::Tensor& working() const { return working_; }  // [N], padding between segments is zero
  const at::Tensor& master() const { return master_; }
  const at::Tensor& gradient() const { return gradient_; }
  const at::Tensor& first_moment() const { return first_moment_; }
  const at::Tensor& second_moment() const { return second_moment_; }
  // After the master weights were written (loading, initialising): refreshes the working copy.
  void copy_master_to_working();

 private:
  std::vector<Segment> segments_;     // in the order of declaration
  std::deque<Parameter> parameters_;  // parallel to segments_; a deque keeps references valid
  std::vector<Group> groups_;
  at::Tensor working_, master_, gradient_, first_moment_, second_moment_;
};

}  // namespace ballast
