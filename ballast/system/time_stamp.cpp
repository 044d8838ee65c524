// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/time_stamp.h"

#include <algorithm>
#include <chrono>

namespace ballast {
namespace {

// gmtime and fmt may take locks or memory, which a signal handler must not.
void put_number(char* at, int digits, unsigned value) noexcept {
  for (int i = digits - 1; i >= 0; --i, value /= 10) at[i] = static_cast<char>('0' + value % 10);
}

}  // namespace

TimeStamp::TimeStamp() noexcept {
  namespace chrono = std::chrono;
  constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
  std::ranges::copy(kForm, text_.begin());
  const auto now = chrono::floor<chrono::seconds>(chrono::system_clock::now());
  const auto day = chrono::floor<chrono::days>(now);
  const chrono::year_month_day date(day);
  const chrono::hh_mm_ss time(now - day);
  put_number(&text_[0], 4, static_cast<unsigned>(static_cast<int>(date.year())));
  put_number(&text_[5], 2, static_cast<unsigned>(date.month()));
  put_number(&text_[8], 2, static_cast<unsigned>(date.day()));
  put_number(&text_[11], 2, static_cast<unsigned>(time.hours().count()));
  put_number(&text_[14], 2, static_cast<unsigned>(time.minutes().count()));
  put_number(&text_[17], 2, static_cast<unsigned>(time.seconds().count()));
}

}  // namespace ballast
