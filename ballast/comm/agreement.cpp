// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/agreement.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "ballast/comm/tensor_hash.h"
#include "ballast/comm/tensor_text.h"
#include "ballast/comm/texts.h"
#include "ballast/system/checksum.h"
#include "ballast/system/file.h"

namespace ballast::comm {
namespace {

using at::Tensor;

constexpr size_t kLongestValue = 120, kMostLines = 10;

Tensor host_tensor(std::span<const int64_t> values) {
  const Tensor tensor = at::empty({std::ssize(values)}, at::kLong);
  std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

// values [K] of every worker: [N, K].
std::vector<int64_t> gather(Communicator& group, std::span<const int64_t> values, Label label) {
  const Tensor all = at::empty({group.size() * std::ssize(values)}, at::kLong);
  group.all_gather(all, host_tensor(values), label);
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

// Facts as one text and back, each part with its length before it.
std::string packed(std::span<const Fact> facts) {
  std::string text;
  for (const Fact& fact : facts) {
    for (const std::string& part : {fact.name, fact.value})
      text += fmt::format("{} {}", part.size(), part);
  }
  return text;
}

std::string take_part(std::string_view& text) {
  size_t length = 0;
  while (text.front() != ' ') {
    length = 10 * length + static_cast<size_t>(text.front() - '0');
    text.remove_prefix(1);
  }
  std::string part(text.substr(1, length));
  text.remove_prefix(1 + length);
  return part;
}

std::vector<Fact> unpacked(std::string_view text) {
  std::vector<Fact> facts;
  while (!text.empty()) {
    std::string name = take_part(text);
    facts.push_back({std::move(name), take_part(text)});
  }
  return facts;
}

std::string workers_text(const std::vector<int>& workers) {
  return fmt::format("worker{} {}", workers.size() == 1 ? "" : "s", fmt::join(workers, ", "));
}

// Workers by what they have; empty: nothing.
using Camps = std::map<std::optional<std::string>, std::vector<int>>;

// "512 on worker 3, 256 on workers 0, 1, 2": the fewest first.
std::string camps_text(const Camps& camps) {
  std::vector<std::pair<std::string, std::vector<int>>> sorted;
  for (const auto& [value, workers] : camps) {
    std::string shown = value ? *value : "not there";
    if (shown.empty()) shown = "\"\"";
    if (shown.size() > kLongestValue) shown = shown.substr(0, kLongestValue) + "...";
    sorted.emplace_back(std::move(shown), workers);
  }
  std::ranges::stable_sort(sorted, {}, [](const auto& camp) { return camp.second.size(); });
  std::string text;
  for (const auto& [value, workers] : sorted)
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", value, workers_text(workers));
  return text;
}

std::string differences(const Communicator& group, const std::vector<std::string>& packed_facts) {
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> facts_of;
  for (const std::string& text : packed_facts) {
    auto& facts = facts_of.emplace_back();
    for (Fact& fact : unpacked(text)) {
      if (std::ranges::find(names, fact.name) == names.end()) names.push_back(fact.name);
      facts[fact.name] = std::move(fact.value);
    }
  }
  std::string text;
  size_t lines = 0;
  for (const std::string& name : names) {
    Camps camps;
    for (size_t worker = 0; worker < facts_of.size(); ++worker) {
      const auto found = facts_of[worker].find(name);
      camps[found == facts_of[worker].end() ? std::nullopt : std::optional(found->second)]
          .push_back(group.members()[worker]);
    }
    if (camps.size() > 1 && ++lines <= kMostLines)
      text += fmt::format("\n  {}: {}", name, camps_text(camps));
  }
  if (lines > kMostLines) text += fmt::format("\n  and {} more", lines - kMostLines);
  return lines == 0 ? "\n  the same facts in another order" : text;
}

// Which of its machine's GPUs a worker has is its own affair.
std::string kind_text(const Tensor& x) {
  return x.is_cpu() ? shape_text(x)
                    : fmt::format("{} on {}", shape_text(x),
                                  c10::DeviceTypeName(x.device().type(), /*lower_case=*/true));
}

// How this worker's tensor differs from the `root`'s, as text.
std::string difference_from(Communicator& group, const Tensor& own, int root, Label label) {
  const Tensor mine = own.cpu().contiguous();
  const Tensor theirs = mine.clone();
  group.broadcast(theirs, root, label);
  const auto* a = static_cast<const char*>(mine.const_data_ptr());
  const auto* b = static_cast<const char*>(theirs.const_data_ptr());
  int64_t elements = 0;
  const size_t size = mine.itemsize();
  for (size_t at = 0; at < mine.nbytes(); at += size)
    elements += std::memcmp(a + at, b + at, size) != 0;
  const Tensor apart = mine.to(at::kDouble).sub(theirs.to(at::kDouble)).abs();
  const double most = apart.numel() == 0 ? 0 : apart.max().item<double>();
  return fmt::format("{} of {} elements, by at most {:.3g}", elements, mine.numel(), most);
}

}  // namespace

void check_agreement(Communicator& group, std::span<const Fact> facts, Label label) {
  const std::string own = packed(facts);
  const auto hash = static_cast<int64_t>(checksum(own));
  const auto hashes = gather(group, {&hash, 1}, label);
  if (std::ranges::count(hashes, hash) == std::ssize(hashes)) return;
  throw SharedError(fmt::format("the workers do not agree ({}); all must be started alike:{}",
                                label.purpose,
                                differences(group, gather_texts(group, own, label))));
}

void check_same_folder(Communicator& group, const std::filesystem::path& folder, Label label) {
  namespace fs = std::filesystem;
  std::random_device random;  // a name that no file system remembers as missing
  const std::string own = fmt::format(".ballast-{:08x}{:08x}-{}", random(), random(), ::getpid());
  const std::string name = gather_texts(group, own, label).front();
  std::error_code error;
  bool written = true;
  if (group.rank() == 0) {
    try {
      write_text_atomically(folder / name, "written to see whether all workers see it\n");
    } catch (const UserError&) {
      written = false;
    }
  }
  group.barrier(label);
  const int64_t sees = group.rank() == 0 ? written : fs::exists(folder / name, error);
  const auto all_see = gather(group, {&sees, 1}, label);
  if (group.rank() == 0) fs::remove(folder / name, error);
  const int first = group.members().front();
  if (all_see.front() == 0) {
    throw SharedError(
        fmt::format("worker {} cannot write into {} ({})", first, folder.string(), label.purpose));
  }
  std::vector<int> blind;
  for (size_t worker = 0; worker < all_see.size(); ++worker) {
    if (all_see[worker] == 0) blind.push_back(group.members()[worker]);
  }
  if (blind.empty()) return;
  throw SharedError(
      fmt::format("{} {} not see what worker {} writes into {} ({}). All workers need the same "
                  "folder: give one "
                  "on a disk that all machines share",
                  workers_text(blind), blind.size() == 1 ? "does" : "do", first, folder.string(),
                  label.purpose));
}

void check_equal(Communicator& group, std::span<const NamedTensor> tensors, Label label) {
  const at::NoGradGuard no_grad;
  std::vector<Fact> facts;
  std::vector<int64_t> hashes;
  for (const NamedTensor& named : tensors) {
    const Tensor& x = named.tensor;
    facts.push_back({named.name, kind_text(x)});
    hashes.push_back(tensor_hash(x));
  }
  check_agreement(group, facts, label);
  const auto all = gather(group, hashes, label);
  const size_t count = tensors.size(), workers = static_cast<size_t>(group.size());
  std::optional<size_t> first;
  size_t differing = 0;
  for (size_t i = 0; i < count; ++i) {
    bool equal = true;
    for (size_t worker = 0; worker < workers; ++worker) equal &= all[worker * count + i] == all[i];
    if (!equal) ++differing;
    if (!equal && !first) first = i;
  }
  if (!first) return;

  std::map<int64_t, std::vector<int>> camps;
  for (size_t worker = 0; worker < workers; ++worker)
    camps[all[worker * count + *first]].push_back(static_cast<int>(worker));
  const auto most = std::ranges::max_element(camps, {}, [](const auto& camp) {
    return std::pair(camp.second.size(), -camp.second.front());
  });
  const int root = most->second.front();
  const auto texts =
      gather_texts(group, difference_from(group, tensors[*first].tensor, root, label), label);
  std::string who;
  for (const auto& [hash, ranks] : camps) {
    if (hash == most->first) continue;
    std::vector<int> workers_apart;
    for (const int rank : ranks) workers_apart.push_back(group.members()[rank]);
    who += fmt::format("\n  {} from worker {}: {}", workers_text(workers_apart),
                       group.members()[root], texts[static_cast<size_t>(ranks.front())]);
  }
  throw SharedError(fmt::format(
      "{} of {} tensors that {} share are no longer equal ({}). The first is {}; it differs on{}",
      differing, count, group.name(), label.purpose, tensors[*first].name, who));
}

void all_or_none(Communicator& group, const std::function<void()>& work, Label label) {
  std::string trouble;
  try {
    work();
  } catch (const WorkersLost&) {
    throw;  // the others cannot be told
  } catch (const UserError& error) {
    trouble = error.what();
    if (trouble.empty()) trouble = "it failed";
  }
  const auto all = gather_texts(group, trouble, label);
  std::vector<std::string> lines;
  for (size_t worker = 0; worker < all.size(); ++worker) {
    if (all[worker].empty() || std::ranges::count(lines, all[worker]) > 0) continue;
    lines.push_back(all[worker]);
    const int number = group.members()[worker];
    if (number > 0 && std::ranges::count(all, all[worker]) < group.size())
      lines.back() = fmt::format("worker {}: {}", number, all[worker]);
  }
  if (!lines.empty()) throw SharedError(fmt::format("{}", fmt::join(lines, "\n")));
}

}  // namespace ballast::comm
