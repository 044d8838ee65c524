// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/validation_samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "ballast/studio/serving/inspector_json.h"
#include "ballast/system/error.h"
#include "ballast/training/validation_data.h"

namespace ballast::serving {
namespace {

constexpr size_t kKept = 8;
// A few dozen windows, and not many more tokens where the context is long.
constexpr int64_t kMostTokens = 24'576, kMostWindows = 48, kLeastWindows = 8;

std::shared_ptr<tokens::TokenSource> data_of(const ServedRun& run,
                                             const loading::LoadedModel& loaded) {
  if (training::lacks_builtin_data(run.path, loaded))
    fail("the data that {} was validated on is not beside it", run.name);
  return training::open_validation_data(run.path, loaded, {});
}

// The document that begins next after a place.
struct Beginning {
  std::vector<int64_t> ids = {};  // the first ones
  int32_t domain = -1;            // -1: not known
};
Beginning next_document(const tokens::TokenSource& source, uint64_t place, int64_t separator) {
  constexpr uint64_t kFar = 4096;
  constexpr ptrdiff_t kLongest = 40;
  std::vector<int64_t> ids(std::min(kFar, source.size() - place));
  source.read(place, ids);
  auto begin = ids.begin();
  if (place > 0) begin = std::ranges::find(ids, separator);
  while (begin != ids.end() && *begin == separator) ++begin;
  const auto end = std::find(begin, begin + std::min(kLongest, ids.end() - begin), separator);
  Beginning found{.ids = {begin, end}};
  if (begin != end)
    source.read_domains(place + static_cast<uint64_t>(begin - ids.begin()), {&found.domain, 1});
  return found;
}

}  // namespace

std::string text_of_validation(const ServedRun& run, const loading::LoadedModel& loaded) {
  if (loaded.tokenizer == nullptr) fail("{} has no tokenizer", run.name);
  constexpr size_t kDocuments = 5;
  const auto source = data_of(run, loaded);
  // Where domains are known, each document is of another.
  const uint64_t places = source->domains().size() > 1 ? 64 : kDocuments;
  std::set<int32_t> seen;
  std::vector<std::string> passages;
  for (uint64_t i = 0; i < places && passages.size() < kDocuments; ++i) {
    const Beginning document =
        next_document(*source, i * source->size() / places, loaded.tokenizer->end_of_text());
    if (document.ids.empty() || (document.domain >= 0 && !seen.insert(document.domain).second))
      continue;
    passages.push_back(text_for_page(loaded.tokenizer.get(), document.ids));
  }
  return fmt::format("{}", fmt::join(passages, "\n"));
}

ValidationSamples::Entry* ValidationSamples::find(const ModelOrder& order, uint64_t step) {
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.order.run == order.run && entry.step == step;
  });
  return found == entries_.end() ? nullptr : &*found;
}

const ValidationSamples::Entry& ValidationSamples::of(const ModelOrder& order,
                                                      const loading::LoadedModel& loaded) {
  Entry* entry = find(order, loaded.step);
  if (entry == nullptr) {
    if (entries_.size() == kKept)
      entries_.erase(std::ranges::min_element(entries_, {}, &Entry::last_use));
    entry = &entries_.emplace_back(Entry{.order = order, .step = loaded.step});
    begin(*entry, loaded);
  }
  entry->last_use = ++uses_;
  return *entry;
}

void ValidationSamples::begin(Entry& entry, const loading::LoadedModel& loaded) {
  try {
    const int64_t context = loaded.config.model.context;
    const auto windows = std::make_shared<batches::EvalWindows>(
        data_of(models_.runs()[entry.order.run], loaded), context, context);
    const int64_t wanted = std::clamp(kMostTokens / context, kLeastWindows, kMostWindows);
    entry.sample =
        std::make_shared<inference::ExpertSample>(windows, static_cast<uint64_t>(wanted));
    post_next(entry.order, entry.step);
  } catch (const UserError& error) {
    entry.trouble = error.what();
  }
}

void ValidationSamples::post_next(const ModelOrder& order, uint64_t step) {
  const auto read = [self = shared_from_this(), order, step](const loading::LoadedModel& loaded) {
    Entry* const entry = self->find(order, step);
    if (entry == nullptr) return;  // others were asked for since
    if (loaded.step != step) {     // a newer one came; who asks for that step by name begins anew
      self->entries_.remove_if([&](const Entry& one) { return &one == entry; });
      return;
    }
    entry->sample->read_next(loaded, experts::RoutingMode::kGreedy);
    if (!entry->sample->is_whole()) self->post_next(order, step);
  };
  const auto failed = [self = shared_from_this(), order, step](const std::exception& error) {
    if (Entry* const entry = self->find(order, step)) entry->trouble = error.what();
  };
  models_.post(order, read, failed);
}

}  // namespace ballast::serving
