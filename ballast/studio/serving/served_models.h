// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ballast/loading/loaded_model.h"

namespace ballast::serving {

// A run (or checkpoint, or export) that is served.
struct ServedRun {
  std::string name;  // the last part of its path; made unique by a number
  std::filesystem::path path;
};

struct ModelOrder {
  size_t run = 0;                      // its place in runs()
  std::optional<uint64_t> step = {};   // of a checkpoint; none: the newest valid one
};

// All models that are served, and the one thread that computes with them. Work is done in the order
// it came; texts that are being written take turns with it, a token each. Models are loaded when
// they are first asked for, and the least recently used are let go of.
class ServedModels {
 public:
  ServedModels(std::vector<ServedRun> runs, const loading::LoadRequest& how, comm::World& world);
  ~ServedModels();  // ends what goes on

  const std::vector<ServedRun>& runs() const;
  std::vector<uint64_t> steps(size_t run) const;  // of its checkpoints, rising; looked up anew

  // Runs `work` on the models' thread. `failed` gets what loading or work throws, there too.
  using Work = std::function<void(const loading::LoadedModel&)>;
  using Failure = std::function<void(const std::exception&)>;
  void post(const ModelOrder& order, Work work, Failure failed);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast::serving
