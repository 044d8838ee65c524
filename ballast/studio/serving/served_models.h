// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ballast/comm/world.h"
#include "ballast/experts/routing.h"
#include "ballast/inference/writer.h"
#include "ballast/loading/loaded_model.h"

namespace ballast::serving {

// A run (or checkpoint, or export) that is served.
struct ServedRun {
  std::string name;  // the last part of its path; made unique by a number
  std::filesystem::path path;
};
std::vector<ServedRun> name_runs(const std::vector<std::string>& paths);

struct ModelOrder {
  size_t run = 0;                     // its place in runs()
  std::optional<uint64_t> step = {};  // of a checkpoint; none: the newest valid one
};

struct TextCounts {
  int64_t written = 0;  // at the moment, side by side
  int64_t waiting = 0;  // for their turn
};

struct ModelsOptions {
  loading::LoadRequest how = {};  // of all models; its path does not count
  // How a model's texts are routed; greedy or priced.
  std::function<experts::RoutingMode(const loading::LoadedModel&)> routing = {};
  int64_t rows = 64;  // texts of a model that are written side by side
};

// All models that are served, and the one thread that computes with them. Work is done in the order
// it came; texts that are being written take turns with it, a token each. Models are loaded when
// they are first asked for, and the least recently used are let go of.
class ServedModels {
 public:
  // The world outlives it.
  ServedModels(std::vector<ServedRun> runs, ModelsOptions options, comm::World& world);
  ~ServedModels();  // ends what goes on

  const std::vector<ServedRun>& runs() const;
  std::vector<uint64_t> steps(size_t run) const;  // of its checkpoints, rising; looked up anew
  const loading::LoadRequest& how() const;

  // Runs `work` on the models' thread. `failed` gets what loading or work throws, there too, within
  // the catch block.
  using Work = std::function<void(const loading::LoadedModel&)>;
  using Failure = std::function<void(const std::exception&)>;
  // `wanted`, asked before anything is loaded: false where nobody waits for it any more.
  // Refused: too much waits already.
  using Wanted = std::function<bool()>;
  void post(const ModelOrder& order, Work work, Failure failed, Wanted wanted = {});

  // Writes texts, which `make` gives when the model is there. All calls are made on the models'
  // thread. `failed` gets what loading, `make` or writing throws, once.
  using MakeTexts = std::function<std::vector<inference::Writing>(const loading::LoadedModel&)>;
  void write(const ModelOrder& order, MakeTexts make, Failure failed, Wanted wanted = {});
  TextCounts texts() const;

  // Waits until the model is loaded. Throws what loading throws.
  void load(const ModelOrder& order);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast::serving
