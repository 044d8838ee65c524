// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ballast {

// While an object exists, SIGINT and SIGTERM ask the program to finish what it is doing and stop; a
// second one ends it at once. One object at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();  // puts the former handlers back
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace ballast
