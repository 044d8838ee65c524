// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "ballast/kernels/parameter.h"
#include "ballast/parameters/held_state.h"
#include "ballast/parameters/slice.h"

namespace ballast::parameters {

// Who holds a parameter, and what of its gradient. The workers are replicas x shards.
enum class Owner {
  kShard,   // a part of it, each shard another; a replica's shard has the gradient of its batch
  kShared,  // all; the shards of a replica have the same gradient, that of the replica's batch
  kRouter,  // all; each worker has the gradient of its own tokens. Shared experts too
  kExpert,  // the one worker that its expert lives on; it has the whole gradient
};

// What moves a parameter.
enum class Update {
  kAdam,
  kMuon,  // matrices of blocks and experts, where TableOptions::muon says so
  kNone,  // nothing: it is frozen
};

struct Initialization {
  enum class Kind { kZero, kOne, kNormal, kOrthogonal } kind = Kind::kZero;
  double deviation = 0;  // of kNormal
  double gain = 0;       // of kOrthogonal

  static Initialization zero() { return {}; }
  static Initialization one() { return {Kind::kOne, 0}; }
  static Initialization normal(double deviation) { return {Kind::kNormal, deviation}; }
  // A matrix whose rows (or columns, if they are fewer) are orthogonal and of length `gain`.
  static Initialization orthogonal(double gain) { return {Kind::kOrthogonal, 0, gain}; }
};

// What a module asks for.
struct SegmentSpec {
  std::string name;  // global, e.g. "block.3.attention.qkv.weight"
  std::vector<int64_t> shape;
  Initialization initialization = {};
  Owner owner = Owner::kShared;
  bool decay = false;   // takes part in weight decay
  double rate = 1;      // of learning, as a factor of the others'
  bool frozen = false;  // has no gradient and is not updated
  // Its gradient is a product: the first pass back of a step may write it. See forget_gradients().
  bool multiplied = false;
  // Rows of the matrices that lie one above another in the whole tensor; empty: it is one matrix.
  std::vector<int64_t> matrices = {};
  std::optional<Slice> slice = {};  // of kShard: what part of the tensor of this name it is
};

// How a tensor is divided among the shards; see Slice. Along rows, each of its matrices is.
struct Division {
  int64_t dim = 0;
  int64_t shard = 0, shards = 1;
};
// The shard's part of a segment; with one shard the segment itself.
SegmentSpec divided(SegmentSpec full, const Division& division);

// Where it lies in the flat buffers.
struct Segment : SegmentSpec {
  std::optional<int64_t> block = {};  // of the model, counted from 0; none: it is outside of them
  Update update = Update::kAdam;
  int64_t offset = 0;  // elements; a multiple of kAlignment
  int64_t size = 0;    // elements
};

// What moves it, where matrices of blocks and experts have Muon or not.
Update update_of(const Segment& segment, bool muon);

// The state that Adam has for these owners' parameters is divided among `workers`, of which this is
// number `rank`.
struct StateDivision {
  Owner first = Owner::kShared, last = Owner::kRouter;
  int64_t rank = 0, workers = 1;
};

struct TableOptions {
  at::Device device = at::kCPU;
  at::ScalarType working = at::kFloat;        // the dtype the model computes in
  at::ScalarType master = at::kFloat;         // the dtype weights and moments are kept in
  bool trainable = true;                      // false: no gradients, moments or separate master
  bool muon = false;                          // for matrices of blocks and experts
  bool average = false;                       // keeps an average of the weights that are trained
  bool writes_gradients = false;              // see forget_gradients()
  std::vector<StateDivision> divisions = {};  // in the order of owners; none: state is whole
  int64_t chunk_bytes = 8 << 20;              // of working weights: HeldState's chunks
};

// All parameters of a model as segments of flat buffers: one for the working copy, one for the
// master weights (the same buffer where the dtypes agree), one for gradients, two for the moments,
// one for the average. Those with Adam lie first, then those with Muon, then those that are frozen:
// buffers that not all of them need end earlier. Modules declare segments and keep the returned
// Parameter, whose tensors exist after allocate().
//
// Moments, average and master weights of their own are the state. Where it is divided among
// workers, its buffers have what is held here alone, one piece after another; offsets are those of
// whole buffers everywhere.
class ParameterTable {
 public:
  static constexpr int64_t kAlignment = HeldState::kUnit;  // every view starts on a cache line

  // The reference stays valid for the table's lifetime. Throws std::logic_error on a repeated name.
  const kernels::Parameter& declare(SegmentSpec spec);
  // What is declared from now on belongs to this block; none: to no block.
  void declare_in_block(std::optional<int64_t> block) { block_ = block; }
  // Segments that differ in their names alone, as one Parameter [count, ...]: slice i is the i-th,
  // contiguous; between slices there may be padding.
  const kernels::Parameter& declare_stack(std::vector<SegmentSpec> specs);

  // Freezes the segments whose names fit a pattern (name_pattern.h). REQUIRES: they are declared,
  // and allocate() comes later. Returns the name of one in a stack that would be frozen in part:
  // then nothing is; empty: there is none.
  std::string freeze(const std::vector<std::string>& patterns);

  // Lays out all segments (by update and owner, in the order of the enums, within an owner those
  // with decay first, then by rate, then in the order of declaration) and makes the buffers, filled
  // with zeros.
  void allocate(const TableOptions& options);
  // What was declared, in that order: a segment, or the first of a stack of `count`.
  struct Entry {
    const Segment& first;
    const at::Tensor& value;  // undefined before allocate() or adopt()
    int64_t count = 1;
    bool stacked = false;
  };
  std::vector<Entry> entries() const;
  // Instead of allocate(): the parameters are these tensors of somebody else's, one for each entry,
  // of its shape, with places for gradients or without. There are no flat buffers then. Throws
  // std::logic_error where they are more or fewer.
  void adopt(const std::vector<kernels::Parameter>& parameters);
  // Fills the weights: a segment is a function of (seed, name) alone, whoever else is in the table;
  // a shard's is that part of the whole tensor.
  void initialize(uint64_t seed);

  const std::vector<Segment>& segments() const { return segments_; }
  const Segment& segment(const std::string& name) const;  // throws std::out_of_range
  // Throws std::logic_error where it is state of which a part is elsewhere.
  at::Tensor view(const at::Tensor& flat, const Segment& segment) const;
  int64_t num_parameters() const;  // without padding

  // What of the state is here.
  const HeldState& held() const { return held_; }
  // Whether a buffer of this table, or one laid out like it, has all elements: it is no state, or
  // the state is not divided.
  bool is_whole(const at::Tensor& flat) const;
  // These elements of a buffer. Throws std::logic_error where they are not here in one piece.
  using Range = FlatRange;
  at::Tensor part(const at::Tensor& flat, const Range& range) const;
  // Of a whole segment's values, writes to the buffer what it holds.
  void put(const at::Tensor& flat, const Segment& segment, const at::Tensor& values) const;
  // A segment's weights: the master's, and the working copy of those whose master is elsewhere.
  void put_weights(const Segment& segment, const at::Tensor& values) const;

  // The elements of the flat buffers that belong to these owners, first to last, and are updated
  // so.
  Range range(Owner first, Owner last, Update update = Update::kAdam) const;
  Range range(Owner owner) const { return range(owner, owner); }
  // Those of all updates that have any: one, unless there are Muon or frozen segments.
  std::vector<Range> ranges(Owner first, Owner last, Update last_update = Update::kNone) const;

  // A range [begin, end) of the flat buffers that shares an update, an owner, a decay rule and a
  // rate. What is frozen is in none.
  struct Group {
    int64_t begin = 0, end = 0;
    Owner owner = Owner::kShared;
    bool decay = false;
    double rate = 1;
    Update update = Update::kAdam;
    bool forgotten = false;  // forget_gradients() makes its gradients ready for a step
  };
  const std::vector<Group>& groups() const { return groups_; }

  const at::Tensor& working() const { return working_; }  // [N], padding between segments is zero
  const at::Tensor& master() const { return master_; }
  const at::Tensor& gradient() const { return gradient_; }            // of what is trained
  const at::Tensor& first_moment() const { return first_moment_; }    // likewise; Muon's momentum
  const at::Tensor& second_moment() const { return second_moment_; }  // of what Adam moves
  const at::Tensor& average() const { return average_; }  // of what is trained; undefined: none
  // Where options.writes_gradients: a step begins. In groups with products that Adam moves, the
  // gradients of products have no meaning until a pass writes them; others are zeros now.
  void forget_gradients() const;
  // All passes of the step are done: gradients that none of them wrote are zeros.
  void settle_gradients() const;
  // After the master weights were written (loading, initialising): refreshes the working copy of
  // those that are here, and the average begins there.
  void copy_master_to_working();

 private:
  // One segment, or a stack of `count` from `first` on.
  struct Declared {
    kernels::Parameter parameter;
    size_t first = 0, count = 1;
    bool stacked = false;
  };
  size_t add(SegmentSpec spec);  // returns its index
  int64_t lay_out();             // returns the length of the buffers
  void lay_out(Update update, Owner owner, int64_t& total);
  at::Tensor view(const at::Tensor& flat, const Declared& declared) const;
  void let_passes_write();

  std::vector<Segment> segments_;  // in the order of declaration
  std::deque<Declared> declared_;  // a deque keeps references valid
  std::optional<int64_t> block_;   // that is declared
  std::unordered_set<std::string> names_;
  std::array<std::array<Range, 4>, 3> ranges_ = {};  // by update and owner
  std::vector<Group> groups_;
  std::vector<kernels::GradientSum> written_;  // by passes back
  std::vector<at::Tensor> cleared_;            // by forget_gradients()
  HeldState held_;
  at::Tensor working_, master_, gradient_, first_moment_, second_moment_, average_;
};

}  // namespace ballast::parameters
