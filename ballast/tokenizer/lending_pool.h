// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ballast::tokenizer {

// Objects lent to one thread at a time and kept when they come back, so that calls from several
// threads each have one of their own. Makes as many as are out at once.
template <typename T>
class LendingPool {
 public:
  // Use of one object until destruction.
  class Loan {
   public:
    explicit Loan(LendingPool& pool) : pool_(pool), object_(pool.take()) {}
    ~Loan() { pool_.put_back(std::move(object_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    T& operator*() const { return *object_; }
    T* operator->() const { return object_.get(); }

   private:
    LendingPool& pool_;
    std::unique_ptr<T> object_;
  };

  // All objects; REQUIRES: none is out.
  std::vector<std::unique_ptr<T>>& objects() { return objects_; }

 private:
  std::unique_ptr<T> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!objects_.empty()) {
        std::unique_ptr<T> object = std::move(objects_.back());
        objects_.pop_back();
        return object;
      }
    }
    return std::make_unique<T>();
  }

  void put_back(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    objects_.push_back(std::move(object));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> objects_;
};

}  // namespace ballast::tokenizer
