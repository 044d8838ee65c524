// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/validation_samples.h"

#include <algorithm>

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

}  // namespace

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
    if (loaded.step != step) fail("there is a newer checkpoint now");
    entry->sample->read_next(loaded, experts::RoutingMode::kGreedy);
    if (!entry->sample->is_whole()) self->post_next(order, step);
  };
  const auto failed = [self = shared_from_this(), order, step](const std::exception& error) {
    if (Entry* const entry = self->find(order, step)) entry->trouble = error.what();
  };
  models_.post(order, read, failed);
}

}  // namespace ballast::serving
