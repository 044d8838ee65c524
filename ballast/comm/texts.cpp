// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/texts.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

namespace ballast::comm {

std::vector<std::string> gather_texts(Communicator& group, const std::string& text, Label label) {
  const at::Tensor length = at::empty({1}, at::kLong).fill_(std::ssize(text));
  const at::Tensor all_lengths = at::empty({group.size()}, at::kLong);
  group.all_gather(all_lengths, length, label);
  const auto* begin = all_lengths.const_data_ptr<int64_t>();
  const RowsOfWorker lengths(begin, begin + group.size());
  const at::Tensor own = at::empty({std::ssize(text)}, at::kByte);
  std::ranges::copy(text, own.mutable_data_ptr<uint8_t>());
  const at::Tensor all =
      at::empty({std::accumulate(lengths.begin(), lengths.end(), int64_t{0})}, at::kByte);
  group.all_gather_uneven(all, own, lengths, label);
  std::vector<std::string> texts;
  const char* at = static_cast<const char*>(all.const_data_ptr());
  for (const int64_t size : lengths) {
    texts.emplace_back(at, static_cast<size_t>(size));
    at += size;
  }
  return texts;
}

}  // namespace ballast::comm
