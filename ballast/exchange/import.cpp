// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/import.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/exchange/transpose.h"
#include "ballast/system/error.h"
#include "ballast/system/version.h"

namespace ballast::exchange {
namespace {

using checkpoint::Dtype;
using checkpoint::TensorView;

bool is_number(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kBF16 || dtype == Dtype::kF16;
}

// The bytes of a part: of a stack, those of its slice.
std::span<const std::byte> bytes_of(const TensorView& theirs, const Part& part) {
  if (!part.slice) return theirs.data;
  const size_t size = theirs.data.size() / static_cast<size_t>(part.shape.front());
  return theirs.data.subspan(static_cast<size_t>(*part.slice) * size, size);
}

}  // namespace

ImportedModel::ImportedModel(const fs::path& folder, int64_t context)
    : folder_(folder), model_(read_model(folder_, context)) {
  if (model_.family == Family::kBallast) {
    take_all();
    return;
  }
  const Layout layout = layout_of(folder_, model_.family);
  const std::vector<Correspondence> wanted = correspondences(model_.family, model_.config, layout);
  for (const Correspondence& tensor : wanted) take(tensor);
  check_nothing_is_left(wanted);
}

void ImportedModel::take_all() {
  for (const std::string& name : folder_.names()) {
    const TensorView& tensor = *folder_.find(name);
    check_number(tensor);
    tensors_.push_back(tensor);
  }
}

void ImportedModel::check_number(const TensorView& tensor) const {
  if (is_number(tensor.dtype)) return;
  fail("{}: tensor {} is {}; want F32, BF16 or F16", folder_.file_of(tensor.name).string(),
       tensor.name, checkpoint::dtype_name(tensor.dtype));
}

const TensorView& ImportedModel::part_of(const Correspondence& wanted, const Part& part) const {
  const TensorView* const found = folder_.find(part.name);
  if (found == nullptr) {
    fail("{} lacks tensor {} ({} by {})", folder_.path().string(), part.name,
         fmt::format("[{}]", fmt::join(part.shape, ", ")), kConfigFile);
  }
  const std::string& file = folder_.file_of(part.name).string();
  if (found->shape != part.shape) {
    fail("{}: tensor {} is {}, but by {} it is {}", file, part.name,
         checkpoint::describe(found->dtype, found->shape), kConfigFile,
         checkpoint::describe(found->dtype, part.shape));
  }
  check_number(*found);
  const TensorView& first = *folder_.find(wanted.parts.front().name);
  if (found->dtype != first.dtype) {
    fail("{}: tensors {} and {} are one here, but they are {} and {}", file, first.name, part.name,
         checkpoint::dtype_name(first.dtype), checkpoint::dtype_name(found->dtype));
  }
  return *found;
}

void ImportedModel::take(const Correspondence& wanted) {
  size_t size = 0;
  Dtype dtype = Dtype::kF32;
  for (const Part& part : wanted.parts) {
    const TensorView& theirs = part_of(wanted, part);
    size += bytes_of(theirs, part).size();
    dtype = theirs.dtype;
  }
  const Part& first = wanted.parts.front();
  if (wanted.parts.size() == 1 && !first.transposed) {
    tensors_.push_back(
        {wanted.ours, dtype, wanted.shape, bytes_of(*folder_.find(first.name), first)});
    return;
  }
  std::vector<std::byte>& bytes = joined_.emplace_back(size);
  std::span<std::byte> left = bytes;
  for (const Part& part : wanted.parts) {
    const std::span<const std::byte> from = bytes_of(*folder_.find(part.name), part);
    if (part.transposed) {
      transpose(from, static_cast<size_t>(part.shape[0]), static_cast<size_t>(part.shape[1]),
                checkpoint::dtype_size(dtype), left.first(from.size()));
    } else {
      std::memcpy(left.data(), from.data(), from.size());
    }
    left = left.subspan(from.size());
  }
  tensors_.push_back({wanted.ours, dtype, wanted.shape, bytes});
}

void ImportedModel::check_nothing_is_left(const std::vector<Correspondence>& taken) const {
  std::set<std::string_view> known;
  for (const Correspondence& tensor : taken) {
    for (const Part& part : tensor.parts) known.insert(part.name);
  }
  std::vector<std::string> left;
  for (const std::string& name : folder_.names()) {
    if (!known.contains(name) && !is_ignored(model_.family, model_.config, name))
      left.push_back(name);
  }
  if (!left.empty()) {
    constexpr size_t kNamed = 4;
    const size_t more = left.size() - std::min(left.size(), kNamed);
    left.resize(left.size() - more);
    fail("{} has tensors that the model of its {} has not: {}{}", folder_.path().string(),
         kConfigFile, fmt::join(left, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
  }
  const TensorView* const output = folder_.find(kOutputWeight);
  if (!model_.config.model.tied || output == nullptr) return;
  const TensorView& embedding = tensors_.front();
  if (output->dtype != embedding.dtype || !std::ranges::equal(output->data, embedding.data)) {
    fail("{}: {} differs from the token embedding, but tie_word_embeddings says they are one",
         folder_.file_of(kOutputWeight).string(), kOutputWeight);
  }
}

void write_imported(const fs::path& file, const ImportedModel& model,
                    checkpoint::Manifest manifest) {
  manifest.config = config::to_toml(model.config());
  manifest.program_version = version();
  checkpoint::export_weights(file, model.tensors(), std::move(manifest));
}

}  // namespace ballast::exchange
