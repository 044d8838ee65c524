// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/export.h"

#include <deque>
#include <map>
#include <stdexcept>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/exchange/hf_folder.h"
#include "ballast/exchange/tensor_map.h"
#include "ballast/exchange/tokenizer_files.h"
#include "ballast/exchange/transpose.h"
#include "ballast/exchange/write_config.h"

namespace ballast::exchange {
namespace {

using checkpoint::Dtype;
using checkpoint::TensorView;
using Json = nlohmann::ordered_json;

const char* torch_name(Dtype dtype) {
  return dtype == Dtype::kBF16 ? "bfloat16" : dtype == Dtype::kF16 ? "float16" : "float32";
}

// Our tensors as theirs; some are views of ours.
class TheirTensors {
 public:
  TheirTensors(std::span<const TensorView> ours, const std::vector<Correspondence>& map) {
    std::map<std::string_view, const TensorView*> by_name;
    for (const TensorView& tensor : ours) by_name[tensor.name] = &tensor;
    for (const Correspondence& wanted : map) {
      const auto found = by_name.find(wanted.ours);
      if (found == by_name.end() || found->second->shape != wanted.shape)
        throw std::logic_error("the model has no such tensor: " + wanted.ours);
      divide(*found->second, wanted.parts);
    }
    if (map.size() != ours.size()) throw std::logic_error("not all tensors have a name of theirs");
  }
  const std::vector<TensorView>& views() const { return views_; }

 private:
  void divide(const TensorView& tensor, const std::vector<Part>& parts) {
    std::span<const std::byte> left = tensor.data;
    const size_t element = checkpoint::dtype_size(tensor.dtype);
    for (const Part& part : parts) {
      size_t size = element;
      for (const int64_t extent : part.shape) size *= static_cast<size_t>(extent);
      std::span<const std::byte> bytes = left.first(size);
      if (part.transposed) {
        std::vector<std::byte>& kept = kept_.emplace_back(size);
        transpose(bytes, static_cast<size_t>(part.shape[1]), static_cast<size_t>(part.shape[0]),
                  element, kept);
        bytes = kept;
      }
      views_.push_back({part.name, tensor.dtype, part.shape, bytes});
      left = left.subspan(size);
    }
  }

  std::deque<std::vector<std::byte>> kept_;
  std::vector<TensorView> views_;
};

void write_json(const fs::path& path, const Json& json) {
  write_text_atomically(path, json.dump(2) + "\n");
}

// What AutoTokenizer has to know beside tokenizer.json.
Json tokenizer_config(const HfExport& model) {
  const std::string end(model.tokenizer->token_bytes(model.tokenizer->end_of_text()));
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"bos_token", end},
          {"eos_token", end},
          {"model_max_length", model.config.model.context},
          {"clean_up_tokenization_spaces", false}};
}

void write_tokenizer(const fs::path& folder, const HfExport& model) {
  if (model.tokenizer == nullptr) return;
  if (model.tokenizer_folder.empty()) {
    model.tokenizer->save(folder);
  } else {
    copy_tokenizer_files(model.tokenizer_folder, folder);
  }
  if (model.tokenizer_folder.empty() || !fs::exists(model.tokenizer_folder / kTokenizerConfig))
    write_json(folder / kTokenizerConfig, tokenizer_config(model));
}

}  // namespace

std::string write_hf_folder(const fs::path& folder, const HfExport& model) {
  make_folder(folder);
  ConfigFacts facts{.dtype = torch_name(model.tensors.front().dtype)};
  if (model.tokenizer != nullptr) facts.end_of_text = model.tokenizer->end_of_text();
  const auto family = fitting_family(model.config);
  const Json config = family ? config_of_family(*family, model.config, facts)
                             : config_of_our_own(model.config, facts);
  write_tokenizer(folder, model);
  write_json(folder / kConfigFile, config);
  if (family) {
    fs::remove(folder / kModelingFile);  // of an export that was there
    const TheirTensors theirs(model.tensors,
                              correspondences(*family, model.config, usual_layout(*family)));
    checkpoint::write_safetensors(folder / kWeightsFile, theirs.views(), {{"format", "pt"}});
  } else {
    write_text_atomically(folder / kModelingFile, modeling_ballast());
    checkpoint::export_weights(folder / kWeightsFile, model.tensors, model.manifest);
  }
  return config.at("architectures").at(0).get<std::string>();
}

}  // namespace ballast::exchange
