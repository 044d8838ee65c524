// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace ballast {

// What stderr gets when it is asked to stop; a line.
inline constexpr std::string_view kStopMessage =
    "stopping as soon as it is safe; once more ends at once\n";

// While an object exists, SIGINT, SIGTERM and SIGUSR1 (which starters of many workers pass on) ask
// the program to finish what it is doing and stop; a second one ends it at once. One object at a
// time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();  // puts the former handlers back
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace ballast
