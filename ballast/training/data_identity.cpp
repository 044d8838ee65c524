// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/data_identity.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "ballast/system/error.h"
#include "ballast/system/log.h"

namespace ballast::training {
namespace {

std::vector<checkpoint::DataEntry> of_role(const std::vector<checkpoint::DataEntry>& entries,
                                           const std::string& role) {
  std::vector<checkpoint::DataEntry> found;
  std::ranges::copy_if(entries, std::back_inserter(found),
                       [&](const checkpoint::DataEntry& entry) { return entry.role == role; });
  return found;
}

std::string in_words(const std::vector<checkpoint::DataEntry>& entries, size_t i) {
  if (i >= entries.size()) return "none";
  return fmt::format("{} ({})", entries[i].name, entries[i].fingerprint);
}

// The copy of the tokenizer that lies in the run, if it is one.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_in(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "tokenizer.json")) return nullptr;
  try {
    return tokenizer::load_tokenizer(folder.string());
  } catch (const UserError& error) {
    log_warning("{}. It is written again, from the data", error.what());
    return nullptr;
  }
}

}  // namespace

std::vector<std::string> data_differences(const std::vector<checkpoint::DataEntry>& before,
                                          const std::vector<checkpoint::DataEntry>& now) {
  std::vector<std::string> lines;
  const std::pair<const char*, const char*> roles[] = {
      {"train", "training data"}, {"valid", "validation data"}, {"tokenizer", "tokenizer"}};
  for (const auto& [role, words] : roles) {
    const std::vector<checkpoint::DataEntry> old = of_role(before, role),
                                             found = of_role(now, role);
    for (size_t i = 0; i < std::max(old.size(), found.size()); ++i) {
      const bool is_same =
          i < old.size() && i < found.size() && old[i].fingerprint == found[i].fingerprint;
      if (!is_same)
        lines.push_back(fmt::format("{}: {} -> {}", words, in_words(old, i), in_words(found, i)));
    }
  }
  return lines;
}

void check_data_of_run(const std::filesystem::path& run,
                       const std::vector<checkpoint::DataEntry>& before, const TrainingData& now) {
  std::vector<std::string> lines;
  if (before.empty()) {
    log_info("its checkpoint does not tell what data it was trained on: they are not compared");
  } else {
    lines = data_differences(before, now.identity);
  }
  const std::filesystem::path folder = run / "tokenizer";
  const auto kept = now.tokenizer ? tokenizer_in(folder) : nullptr;
  if (kept != nullptr && kept->fingerprint() != now.tokenizer->fingerprint()) {
    lines.push_back(fmt::format("{} ({}) is not the tokenizer of the data ({})", folder.string(),
                                tokens::fingerprint_text(*kept),
                                tokens::fingerprint_text(*now.tokenizer)));
  }
  if (lines.empty()) return;
  fail(
      "{} was trained on other data: {}. Put back what it was, start a new run directory, or go on "
      "with what there is now by --allow-other-data",
      run.string(), fmt::join(lines, "; "));
}

}  // namespace ballast::training
