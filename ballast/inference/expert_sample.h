// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ballast/batches/eval_windows.h"
#include "ballast/experts/routing.h"
#include "ballast/inference/expert_use.h"
#include "ballast/loading/loaded_model.h"

namespace ballast::inference {

// A token that an expert got, and what stood around it in its window.
struct TokenInContext {
  std::vector<int64_t> before, after;
  int64_t token = 0;
  std::string domain = {};  // empty: not known
};

// Which experts the tokens of some windows went to; the windows are spread evenly over a source.
// They are read one at a time, so that other work can be done in between. Not thread-safe.
class ExpertSample {
 public:
  // At most `windows` of them.
  ExpertSample(std::shared_ptr<const batches::EvalWindows> source, uint64_t windows);

  uint64_t wanted() const { return wanted_; }
  uint64_t read() const { return static_cast<uint64_t>(windows_.size()); }
  bool is_whole() const { return read() == wanted_; }
  // Passes the next window through the model, the same one each time. REQUIRES: one worker; there
  // is a next one.
  void read_next(const loading::LoadedModel& loaded, experts::RoutingMode routing);

  uint64_t tokens() const;  // of all windows that were read
  // Tokens, by domain too, of expert `expert` of the model's `layer`-th layer of experts, as expert
  // 0, and of all others, as expert 1.
  ExpertUse use_of(size_t layer, int64_t expert) const;
  // At most n tokens that the expert got, of as many windows as possible, in the order of the text,
  // with at most `around` tokens on each side.
  std::vector<TokenInContext> contexts_of(size_t layer, int64_t expert, size_t n,
                                          int64_t around) const;

 private:
  struct Window {
    std::vector<int64_t> ids;
    std::vector<int32_t> domains;                       // empty: not known
    std::vector<std::vector<int32_t>> expert_of_token;  // by layer
  };
  TokenInContext in_context(const Window& window, int64_t position, int64_t around) const;

  std::shared_ptr<const batches::EvalWindows> source_;
  uint64_t wanted_;
  int64_t vocabulary_ = 0;
  std::vector<Window> windows_;
};

}  // namespace ballast::inference
