// SPDX-License-Identifier: Apache-2.0
// A trained model as a class of torch: what ballast.load returns is written around it.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ballast/comm/world.h"
#include "ballast/experts/routing.h"
#include "ballast/inference/generate.h"
#include "ballast/loading/framing.h"
#include "ballast/loading/loaded_model.h"
#include "ballast/system/error.h"
#include "ballast/system/utf8.h"
#include "ballast/tokenizer/text_bounds.h"

namespace ballast::python {
namespace {

using at::Tensor;
using tokenizer::TokenId;

std::vector<TokenId> narrowed(const std::vector<int64_t>& ids, int64_t vocabulary) {
  std::vector<TokenId> narrow;
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocabulary)
      fail("there is no token {}: the model knows 0 to {}", id, vocabulary - 1);
    narrow.push_back(static_cast<TokenId>(id));
  }
  return narrow;
}

// Where and with how many threads torch computes is the program's to say; loading a model changes
// it.
class KeptPlace {
 public:
  KeptPlace() : threads_(at::get_num_threads()) {
    if (!at::hasCUDA()) return;
    const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
    device_ = gpus.getDevice();
    stream_ = gpus.getStream(*device_);
  }
  ~KeptPlace() {
    at::set_num_threads(threads_);
    if (!device_) return;
    const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
    // What was loaded is there for whatever is queued next, on any stream.
    gpus.synchronizeStream(gpus.getStream(gpus.getDevice()));
    gpus.setDevice(*device_);
    gpus.exchangeStream(*stream_);
  }
  KeptPlace(const KeptPlace&) = delete;
  KeptPlace& operator=(const KeptPlace&) = delete;

 private:
  int threads_;
  std::optional<at::Device> device_;
  std::optional<c10::Stream> stream_;
};

class TrainedModel : public torch::CustomClassHolder {
 public:
  TrainedModel(const std::string& path, const std::string& device, const std::string& precision,
               bool average)
      : world_(comm::open_world({.kind = comm::WorldKind::kSingle})) {
    const KeptPlace kept;
    loaded_ = loading::load_model(
        {.path = path,
         .device = config::choice_of<config::DeviceChoice>(device),
         .precision = config::choice_of<config::Precision>(precision),
         .weights = average ? loading::Weights::kAverage : loading::Weights::kLast},
        *world_);
    if (loaded_->tokenizer)
      start_ = tokenizer::start_of_text(*loaded_->tokenizer, loading::framing_of(loaded_->data));
    if (loaded_->config.experts.layers > 0)
      mode_ =
          experts::parse_routing_mode(config::name_of(loaded_->config.experts.tested_routing()));
  }

  // [B, S] int64 -> [B, S, V]
  Tensor logits(const Tensor& ids) const {
    const at::NoGradGuard no_grad;
    const config::ModelConfig& model = loaded_->config.model;
    if (ids.dim() != 2 || ids.scalar_type() != at::kLong) fail("ids: want int64 [texts, tokens]");
    if (ids.size(1) < 1 || ids.size(1) > model.context)
      fail("{} tokens: the model takes 1 to {}", ids.size(1), model.context);
    if (ids.numel() > 0 &&
        (ids.min().item<int64_t>() < 0 || ids.max().item<int64_t>() >= model.vocabulary))
      fail("an id is outside of the model's 0 to {}", model.vocabulary - 1);
    const Tensor tokens = ids.to(loaded_->place.device).contiguous();
    const Tensor hidden = loaded_->model->forward(tokens, {.mode = mode_});
    return loaded_->model->logits(hidden).view({ids.size(0), ids.size(1), -1});
  }

  std::vector<std::vector<int64_t>> generate(const std::vector<std::vector<int64_t>>& prompts,
                                             int64_t max_tokens, double temperature, int64_t top_k,
                                             double top_p, int64_t seed, bool stops) const {
    std::vector<std::vector<TokenId>> narrow;
    for (const auto& prompt : prompts)
      narrow.push_back(narrowed(prompt, loaded_->config.model.vocabulary));
    const TokenId end = loaded_->tokenizer ? loaded_->tokenizer->end_of_text() : 0;
    const auto written = inference::generate(
        *loaded_->model, loaded_->place, end, narrow,
        {.max_tokens = max_tokens,
         .sampling = {.temperature = temperature, .top_k = top_k, .top_p = top_p},
         .seed = static_cast<uint64_t>(seed),
         .routing = mode_,
         .stop_at_end_of_text = stops && loaded_->tokenizer != nullptr,
         .start = start_});
    std::vector<std::vector<int64_t>> wide;
    for (const auto& text : written) wide.emplace_back(text.begin(), text.end());
    return wide;
  }

  std::vector<int64_t> encode(const std::string& text) const {
    std::vector<TokenId> ids;
    tokenizer().encode(text, ids);
    return {ids.begin(), ids.end()};
  }
  // Bytes that are no UTF-8 are replaced. `continued`: the text goes on where another ended.
  std::string decode(const std::vector<int64_t>& ids, bool continued) const {
    const auto narrow = narrowed(ids, loaded_->config.model.vocabulary);
    return replace_invalid_utf8(continued ? tokenizer().decode(narrow)
                                          : tokenizer().decode_text(narrow));
  }

  std::string config() const { return config::to_toml(loaded_->config); }
  std::string path() const { return loaded_->path.string(); }
  std::string device() const { return loaded_->place.device.str(); }
  int64_t step() const { return static_cast<int64_t>(loaded_->step); }
  int64_t context() const { return loaded_->config.model.context; }
  int64_t vocabulary() const { return loaded_->config.model.vocabulary; }

 private:
  const tokenizer::Tokenizer& tokenizer() const {
    if (!loaded_->tokenizer) fail("{} has no tokenizer: give and take ids", path());
    return *loaded_->tokenizer;
  }

  std::unique_ptr<comm::World> world_;
  std::unique_ptr<loading::LoadedModel> loaded_;
  experts::RoutingMode mode_ = experts::RoutingMode::kGreedy;
  std::vector<TokenId> start_;  // what stands before a prompt
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.class_<TrainedModel>("TrainedModel")
      .def(torch::init<std::string, std::string, std::string, bool>())
      .def("logits", &TrainedModel::logits)
      .def("generate", &TrainedModel::generate)
      .def("encode", &TrainedModel::encode)
      .def("decode", &TrainedModel::decode)
      .def("config", &TrainedModel::config)
      .def("path", &TrainedModel::path)
      .def("device", &TrainedModel::device)
      .def("step", &TrainedModel::step)
      .def("context", &TrainedModel::context)
      .def("vocabulary", &TrainedModel::vocabulary);
}

}  // namespace ballast::python
