// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace ballast::assignment {

// Cuts one piece of memory into arrays. Without memory it only counts the bytes.
class WorkspaceLayout {
 public:
  explicit WorkspaceLayout(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <typename T>
  T* take(size_t count) {
    T* array = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return array;
  }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlignment = 256;
  char* memory_;
  size_t bytes_ = 0;
};

}  // namespace ballast::assignment
