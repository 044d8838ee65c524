// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/scores/score_files.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "ballast/checkpoint/safetensors.h"
#include "ballast/studio/scores/npy_file.h"
#include "ballast/studio/scores/number_table.h"
#include "ballast/system/error.h"

namespace ballast::scores {
namespace {

bool is_text(const fs::path& path) {
  return path.extension() == ".csv" || path.extension() == ".txt";
}

template <typename Element>
std::shared_ptr<const void> keep(std::vector<Element> elements) {
  auto owner = std::make_shared<const std::vector<Element>>(std::move(elements));
  return {owner, owner->data()};
}

// fp32 scores of numbers that lie in any order.
StoredScores rounded(const std::string& where, const std::vector<double>& numbers,
                     assignment::ScoreMatrix matrix) {
  std::vector<float> scores(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    scores[i] = static_cast<float>(numbers[i]);
    if (std::isfinite(numbers[i]) && std::isinf(scores[i])) {
      const auto at = static_cast<int64_t>(i);
      const bool by_rows = matrix.expert_stride == 1;
      fail("{}: the score of token {} for expert {}, {:g}, is too large for fp32", where,
           by_rows ? at / matrix.experts : at % matrix.tokens,
           by_rows ? at % matrix.experts : at / matrix.tokens, numbers[i]);
    }
  }
  matrix.type = assignment::ScoreType::kFloat32;
  StoredScores stored{matrix, keep(std::move(scores))};
  stored.matrix.data = stored.memory.get();
  return stored;
}

// Elements of two or four bytes as they are.
StoredScores as_they_are(std::vector<std::byte> bytes, assignment::ScoreMatrix matrix,
                         assignment::ScoreType type) {
  matrix.type = type;
  StoredScores stored{matrix, keep(std::move(bytes))};
  stored.matrix.data = stored.memory.get();
  return stored;
}

StoredScores read_npy(const std::string& where) {
  const NpyFile file(where);
  if (file.shape().size() != 2)
    fail("{} holds an array {}; want two dimensions, tokens and experts", where, file.shape_text());
  assignment::ScoreMatrix matrix{.tokens = file.shape()[0], .experts = file.shape()[1]};
  matrix.token_stride = file.is_fortran() ? 1 : matrix.experts;
  matrix.expert_stride = file.is_fortran() ? matrix.tokens : 1;
  if (file.kind() == 'f' && file.item_size() == 2)
    return as_they_are(file.bytes(), matrix, assignment::ScoreType::kFloat16);
  if (file.kind() == 'f' && file.item_size() == 4)
    return as_they_are(file.bytes(), matrix, assignment::ScoreType::kFloat32);
  return rounded(where, file.numbers(), matrix);
}

const checkpoint::TensorView& choose_tensor(const checkpoint::SafetensorsFile& file,
                                            const std::string& name) {
  std::string names;
  const checkpoint::TensorView* only = nullptr;
  size_t matrices = 0;
  for (const checkpoint::TensorView& tensor : file.tensors()) {
    if (tensor.shape.size() != 2) continue;
    names += (matrices++ == 0 ? "" : ", ") + tensor.name;
    only = &tensor;
  }
  if (!name.empty()) {
    const checkpoint::TensorView* const found = file.find(name);
    if (found == nullptr)
      fail("{} holds no tensor \"{}\"; those of two dimensions are: {}", file.path().string(), name,
           matrices == 0 ? "none" : names);
    if (found->shape.size() != 2)
      fail("{}: tensor \"{}\" is {}; want two dimensions, tokens and experts", file.path().string(),
           name, checkpoint::describe(found->dtype, found->shape));
    return *found;
  }
  if (matrices == 0)
    fail("{} holds no tensor of two dimensions, tokens and experts", file.path().string());
  if (matrices > 1)
    fail("{} holds {} tensors of two dimensions; name one as {}:NAME, of {}", file.path().string(),
         matrices, file.path().string(), names);
  return *only;
}

StoredScores read_safetensors(const std::string& path, const std::string& name) {
  const checkpoint::SafetensorsFile file(path);
  const checkpoint::TensorView& tensor = choose_tensor(file, name);
  const assignment::ScoreMatrix matrix{
      .tokens = tensor.shape[0], .experts = tensor.shape[1], .token_stride = tensor.shape[1]};
  const auto bytes = [&] { return std::vector(tensor.data.begin(), tensor.data.end()); };
  switch (tensor.dtype) {
    case checkpoint::Dtype::kF16:
      return as_they_are(bytes(), matrix, assignment::ScoreType::kFloat16);
    case checkpoint::Dtype::kBF16:
      return as_they_are(bytes(), matrix, assignment::ScoreType::kBFloat16);
    case checkpoint::Dtype::kF32:
      return as_they_are(bytes(), matrix, assignment::ScoreType::kFloat32);
    case checkpoint::Dtype::kF64: {
      std::vector<double> numbers(tensor.data.size() / sizeof(double));
      if (!numbers.empty()) std::memcpy(numbers.data(), tensor.data.data(), tensor.data.size());
      return rounded(path, numbers, matrix);
    }
    default:
      fail("{}: tensor \"{}\" is {}; want F16, BF16, F32 or F64", path, tensor.name,
           checkpoint::describe(tensor.dtype, tensor.shape));
  }
}

StoredScores read_text_scores(const std::string& where) {
  const NumberTable table = read_number_table(where);
  if (table.rows == 0) fail("{} holds no numbers", where);
  return rounded(where, table.values,
                 {.tokens = table.rows, .experts = table.columns, .token_stride = table.columns});
}

template <typename Number>
void write_list(const fs::path& path, std::span<const Number> numbers) {
  check_numbers_path(path);
  if (path.extension() == ".npy") return write_npy(path, numbers);
  std::string text;
  for (const Number number : numbers) text += fmt::format("{}\n", number);
  write_text_atomically(path, text);
}

}  // namespace

StoredScores store_scores(std::vector<float> scores, int64_t tokens, int64_t experts) {
  StoredScores stored{assignment::score_matrix(nullptr, tokens, experts), keep(std::move(scores))};
  stored.matrix.data = stored.memory.get();
  return stored;
}

StoredScores read_scores(const std::string& where) {
  constexpr std::string_view kNamed = ".safetensors:";
  const fs::path path(where);
  if (path.extension() == ".npy") return read_npy(where);
  if (path.extension() == ".safetensors") return read_safetensors(where, "");
  if (is_text(path)) return read_text_scores(where);
  if (const size_t at = where.find(kNamed); at != std::string::npos) {
    const size_t end = at + kNamed.size();
    return read_safetensors(where.substr(0, end - 1), where.substr(end));
  }
  fail("{}: scores are read from .npy, .safetensors, .csv and .txt files", where);
}

std::vector<double> read_numbers(const fs::path& path) {
  if (path.extension() == ".npy") {
    const NpyFile file(path);
    int64_t longest = 1;
    for (const int64_t size : file.shape()) longest = std::max(longest, size);
    if (file.elements() != 0 && longest != file.elements())
      fail("{} holds an array {}; want one dimension", path.string(), file.shape_text());
    return file.numbers();
  }
  if (!is_text(path)) fail("{}: numbers are read from .npy, .csv and .txt files", path.string());
  NumberTable table = read_number_table(path);
  if (table.rows > 1 && table.columns > 1)
    fail("{} holds {} rows of {} numbers; want one row or one column", path.string(), table.rows,
         table.columns);
  return std::move(table.values);
}

std::vector<int64_t> read_whole_numbers(const fs::path& path) {
  std::vector<int64_t> whole;
  for (const double number : read_numbers(path)) {
    if (!(std::abs(number) <= 0x1p53) || number != std::floor(number))
      fail("{}: number {} is {:g}; want whole numbers", path.string(), whole.size(), number);
    whole.push_back(static_cast<int64_t>(number));
  }
  return whole;
}

void write_numbers(const fs::path& path, std::span<const int32_t> numbers) {
  write_list(path, numbers);
}

void write_numbers(const fs::path& path, std::span<const double> numbers) {
  write_list(path, numbers);
}

void check_numbers_path(const fs::path& path) {
  if (path.extension() != ".npy" && path.extension() != ".csv")
    fail("cannot write {}: want a name that ends in .npy or .csv", path.string());
}

}  // namespace ballast::scores
