// SPDX-License-Identifier: Apache-2.0
#include "python/ops/held_layers.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "python/ops/layer_settings.h"
#include "python/ops/process_group.h"

namespace ballast::python {

using experts::BorrowedLayer;

HeldLayers& HeldLayers::instance() {
  // Never destroyed: tensors may let layers go while the process ends.
  static auto* const layers = new HeldLayers;
  return *layers;
}

HeldLayers::Key HeldLayers::key_of(const std::string& settings, const std::string& group,
                                   at::Device device) {
  const int64_t stream =
      device.is_cpu() ? 0 : c10::impl::VirtualGuardImpl(device.type()).getStream(device).id();
  return {settings, group, device.str(), stream};
}

std::unique_ptr<BorrowedLayer> HeldLayers::take(const Key& key) {
  if (key.group.empty()) {
    const std::scoped_lock lock(mutex_);
    auto& idle = idle_[key];
    if (!idle.empty()) {
      auto layer = std::move(idle.back());
      idle.pop_back();
      return layer;
    }
  }
  const LayerSettings parsed = parse_settings(key.settings);
  const auto workers = open_process_group(key.group);
  config::check_workers(parsed.config, workers->size());
  return std::make_unique<BorrowedLayer>(parsed.config, parsed.place, workers);
}

void HeldLayers::put_back(const Key& key, std::unique_ptr<BorrowedLayer> layer) {
  constexpr size_t kMostIdle = 4;
  if (!key.group.empty()) return;
  const std::scoped_lock lock(mutex_);
  auto& idle = idle_[key];
  if (idle.size() < kMostIdle) idle.push_back(std::move(layer));
}

at::Tensor HeldLayers::hold(std::unique_ptr<BorrowedLayer> layer) {
  auto* const memory = new int64_t(0);
  {
    const std::scoped_lock lock(mutex_);
    held_[memory] = std::move(layer);
  }
  const auto let_go = [this](void* data) {
    const std::unique_ptr<int64_t> own(static_cast<int64_t*>(data));
    std::unique_ptr<BorrowedLayer> layer;  // is destroyed without the lock
    const std::scoped_lock lock(mutex_);
    if (auto found = held_.find(data); found != held_.end()) {
      layer = std::move(found->second);
      held_.erase(found);
    }
  };
  return at::from_blob(memory, {1}, let_go, at::TensorOptions().dtype(at::kLong));
}

std::unique_ptr<BorrowedLayer> HeldLayers::release(const at::Tensor& held) {
  const std::scoped_lock lock(mutex_);
  const auto found = held_.find(held.const_data_ptr());
  if (found == held_.end()) return nullptr;
  auto layer = std::move(found->second);
  held_.erase(found);
  return layer;
}

int64_t HeldLayers::held() {
  const std::scoped_lock lock(mutex_);
  return std::ssize(held_);
}

}  // namespace ballast::python
