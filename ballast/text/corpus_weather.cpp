// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "ballast/text/corpus_domains.h"
#include "ballast/text/corpus_words.h"

namespace ballast::text {
namespace {

constexpr Words kDrySkies =
    Words::zipf({"sunny", "a few clouds", "clear", "overcast", "hazy", "fog", "bright spells",
                 "grey", "high clouds", "mild sun", "blue sky", "thin clouds"});
constexpr Words kWetSkies =
    Words::zipf({"light rain", "showers", "steady rain", "drizzle", "thunderstorms", "heavy rain",
                 "rain at times", "a downpour", "hail", "wet fog"});
constexpr Words kSnowSkies = Words::zipf({"light snow", "snow showers", "heavy snow", "sleet",
                                          "a snowstorm", "a few flakes", "wet snow"});
constexpr Words kDirections = Words::zipf(
    {"west", "southwest", "northwest", "south", "north", "east", "northeast", "southeast"});
constexpr Words kTendencies =
    Words::zipf({"little change", "a warmer week", "a colder week", "more sun", "wind from the sea",
                 "unsettled days", "clear nights", "more rain", "a calm weekend",
                 "fog on the coast", "thunder in the hills", "a dry spell"});

constexpr std::array<int, 12> kMonthLow = {-4, -3, 0, 4, 8, 12, 14, 13, 10, 6, 1, -2};

struct Day {
  size_t weekday;
  int low, high;  // in tenths of a degree
  int water;      // millimetres of rain or snow, 0 on a dry day
};

struct Weather {
  Chooser& out;
  size_t weekday = 0, month = 0;
  int low = 0, pressure = 1013;  // whole degrees, hPa
  bool wet = false;
  std::vector<Day> days;
};

// A step of at most 5 degrees that tends back to what the month usually brings.
int choose_low(Weather& weather) {
  const int usual = kMonthLow[weather.month];
  std::array<uint32_t, 11> weights = {1, 1, 2, 3, 3, 3, 3, 3, 2, 1, 1};
  for (size_t i = 0; i < weights.size(); ++i) {
    const int low = weather.low + static_cast<int>(i) - 5;
    if (std::abs(low - usual) < std::abs(weather.low - usual)) weights[i] *= 2;
  }
  return weather.low + static_cast<int>(weather.out.choose(weights)) - 5;
}

bool is_cold(const Day& day) { return day.high < 40; }

const Words& skies(bool wet, const Day& day) {
  if (!wet) return kDrySkies;
  return is_cold(day) ? kSnowSkies : kWetSkies;
}

// Completes whole degrees by a decimal: returns tenths. There is no -0.
int say_tenths(Chooser& out, int degrees) {
  out.write(degrees, ".");
  const int decimal = out.say_number(0, 9);
  return 10 * degrees + (degrees < 0 ? -decimal : decimal);
}

void write_tenths(Chooser& out, int tenths) { out.write(tenths / 10, ".", std::abs(tenths % 10)); }

// Speeds in km/h: most days are calm, few are stormy. The ranges do not overlap.
int say_wind(Chooser& out) {
  switch (out.choose({6, 4, 1})) {
    case 0:
      return out.say_number(1, 19);
    case 1:
      return out.say_number(20, 61);
    default:
      return out.say_number(62, 117);
  }
}

// Warnings follow from the numbers.
void write_warnings(Chooser& out, const Day& day, int speed) {
  if (day.low < 0) out.write(" Frost.");
  if (day.high >= 240) out.write(" Hot.");
  if (speed >= 62) out.write(" Gale.");
  if (day.water >= 20) out.write(is_cold(day) ? " Deep snow." : " Floods.");
}

void write_day(Weather& weather) {
  Chooser& out = weather.out;
  out.write(kWeekdays[weather.weekday], ": ");
  weather.low = choose_low(weather);
  const int high = weather.low + 3 + static_cast<int>(out.choose({1, 2, 3, 3, 3, 3, 2, 2, 1}));
  weather.days.push_back({weather.weekday, 0, 0, 0});
  Day& day = weather.days.back();
  day.low = say_tenths(out, weather.low);
  out.write(" to ");
  day.high = say_tenths(out, high);
  out.write(" °C, ");
  weather.wet = out.chance(weather.wet ? 6 : 3, 10);
  const Words& words = skies(weather.wet, day);
  const size_t sky = out.say(words);
  if (out.chance(1, 2)) {
    out.write(", then ");
    out.say(words, only(sky));
  }
  out.write(", ");
  out.say(kDirections);
  out.write(" wind ");
  const int speed = say_wind(out);
  out.write(" km/h, ");
  if (weather.wet) {
    day.water = out.chance(2, 3) ? out.say_number(1, 9) : out.say_number(10, 40);
    out.write(" mm, ");
  }
  weather.pressure = out.say_number(weather.pressure - 12, weather.pressure + 12);
  out.write(" hPa, ");
  out.say_number(weather.wet ? 70 : 30, 99);
  out.write(" %.");
  write_warnings(out, day, speed);
  out.write("\n");
}

void write_summary(const Weather& weather, std::string_view town) {
  Chooser& out = weather.out;
  const auto& days = weather.days;
  const auto warmer = [](const Day& a, const Day& b) { return a.high < b.high; };
  const auto colder = [](const Day& a, const Day& b) { return a.low < b.low; };
  const Day& warmest = *std::max_element(days.begin(), days.end(), warmer);
  const Day& coldest = *std::min_element(days.begin(), days.end(), colder);
  int wet_days = 0, water = 0;
  for (const Day& day : days) {
    wet_days += day.water > 0;
    water += day.water;
  }
  out.write(town, ": high ");
  write_tenths(out, warmest.high);
  out.write(" °C on ", kWeekdays[warmest.weekday], ", low ");
  write_tenths(out, coldest.low);
  out.write(" °C on ", kWeekdays[coldest.weekday], ", ", water, " mm on ", wet_days, " of ",
            days.size(), " days");
  out.write(". Next: ");
  out.say(kTendencies);
  out.write(".\n");
}

}  // namespace

void write_weather(Chooser& out) {
  Weather weather{out, 0, 0, 0, 1013, false, {}};
  out.write("Weather in ");
  const size_t town = out.say(kTowns);
  out.write(" from ");
  weather.weekday = out.say(kWeekdays);
  out.write(", ");
  weather.month = out.say(kMonths);
  out.write(" ");
  out.say_number(1, kMonthDays[weather.month]);
  out.write("\n");
  weather.low = kMonthLow[weather.month];
  while (weather.days.size() < 4 || (weather.days.size() < 7 && !out.chance(1, 4))) {
    write_day(weather);
    weather.weekday = (weather.weekday + 1) % kWeekdays.size();
  }
  write_summary(weather, kTowns[town]);
}

}  // namespace ballast::text
