// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "ballast/comm/communicator.h"
#include "ballast/system/error.h"

namespace ballast::comm {

// An error that every worker throws at the same place with the same message: one may print it for
// all.
class SharedError : public UserError {
 public:
  using UserError::UserError;
};

// Something that must be the same on all workers: {"model.width", "256"}.
struct Fact {
  std::string name;
  std::string value;
};

// Messages number workers as in the whole world, whatever the group.

// Collective. SharedError: the workers' facts differ; names each fact, its values, and who has
// them.
void check_agreement(Communicator& group, std::span<const Fact> facts, Label label);

// Collective. Checks that the folder, which is there on worker 0, is the same one for all: each
// must see a file that worker 0 writes there for a moment. SharedError: names who does not see it;
// or worker 0 cannot write.
void check_same_folder(Communicator& group, const std::filesystem::path& folder, Label label);

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Collective. Compares tensors that should be equal to the bit on all workers (shared parameters),
// by a hash of each. SharedError: names, types or shapes differ; or a tensor does. It names the
// group, the first such tensor, who has another one than most, in how many elements and by how
// much.
void check_equal(Communicator& group, std::span<const NamedTensor> tensors, Label label);

// Collective. Does `work` on every worker; where it throws a UserError, all throw a SharedError
// that says what happened, and on whom if not on worker 0. For what may fail: files, memory.
void all_or_none(Communicator& group, const std::function<void()>& work, Label label);

}  // namespace ballast::comm
