// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "ballast/text/grammar.h"

// Words that several domains of the built-in corpus share. A change changes the corpus.
namespace ballast::text {

// First names; women and men take turns.
inline constexpr Words kPeople = Words::zipf(
    {"Anna",  "Ben",   "Clara",  "David",  "Emma",   "Felix",  "Greta", "Henry",  "Ida",   "Jonas",
     "Karin", "Leo",   "Marta",  "Nils",   "Olga",   "Paul",   "Rosa",  "Simon",  "Tilda", "Victor",
     "Wanda", "Oscar", "Yara",   "Adam",   "Bella",  "Carl",   "Dora",  "Erik",   "Flora", "Georg",
     "Hanna", "Ivan",  "Julia",  "Konrad", "Lena",   "Martin", "Nora",  "Otto",   "Paula", "Robert",
     "Sara",  "Tom",   "Vera",   "Walter", "Zoe",    "Max",    "Mira",  "Ralf",   "Edith", "Bruno",
     "Agnes", "Hugo",  "Lotte",  "Kurt",   "Stella", "Jakob",  "Thea",  "Magnus", "Alma",  "Rudolf",
     "Fanny", "Emil",  "Sophie", "Anton"});

inline constexpr Words kTowns = Words::zipf(
    {"Bergen",  "Lisbon", "Turin",   "Oslo",    "Ghent",   "Vienna", "Porto",    "Malmo",
     "Cork",    "Riga",   "Basel",   "Granada", "Leeds",   "Tartu",  "Nantes",   "Gdansk",
     "Trieste", "Aarhus", "Split",   "Bologna", "Utrecht", "Bath",   "Narvik",   "Seville",
     "Dublin",  "Krakow", "Verona",  "Lyon",    "Tampere", "Bremen", "Salzburg", "Dundee",
     "Antwerp", "Genoa",  "Vilnius", "Odense",  "Cadiz",   "Graz",   "Rennes",   "Uppsala",
     "Padua",   "Galway", "Lucerne", "Sopron"});

inline constexpr Words kWeekdays =
    Words::uniform({"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"});

inline constexpr Words kMonths =
    Words::uniform({"January", "February", "March", "April", "May", "June", "July", "August",
                    "September", "October", "November", "December"});

// Of things.
inline constexpr Words kAdjectives = Words::zipf(
    {"red",      "old",     "small",     "blue",    "green",    "new",     "black",    "heavy",
     "yellow",   "broken",  "silver",    "striped", "white",    "wooden",  "borrowed", "empty",
     "golden",   "round",   "dusty",     "strange", "purple",   "tiny",    "brown",    "orange",
     "painted",  "cheap",   "leather",   "soft",    "enormous", "rusty",   "grey",     "woollen",
     "polished", "crooked", "copper",    "warm",    "pink",     "elegant", "plastic",  "hollow",
     "famous",   "curved",  "expensive", "faded",   "square",   "ancient", "spotted",  "velvet",
     "ugly",     "patched", "iron",      "narrow",  "foreign",  "bright",  "oval",     "carved",
     "light",    "muddy",   "noisy",     "plain",   "fragile",  "odd",     "secret",   "simple"});

// Things one can carry.
inline constexpr Words kObjects = Words::zipf(
    {"umbrella", "key",       "bag",     "book",   "coat",     "lamp",     "bicycle",   "camera",
     "hat",      "notebook",  "chair",   "clock",  "map",      "scarf",    "ladder",    "guitar",
     "bottle",   "basket",    "watch",   "mirror", "kettle",   "violin",   "suitcase",  "teapot",
     "kite",     "torch",     "blanket", "hammer", "vase",     "drum",     "telescope", "rope",
     "painting", "mug",       "carpet",  "bell",   "compass",  "trumpet",  "lantern",   "stool",
     "pillow",   "whistle",   "cushion", "anchor", "candle",   "barrel",   "puppet",    "saddle",
     "wallet",   "globe",     "shovel",  "mask",   "envelope", "necklace", "razor",     "tent",
     "ribbon",   "accordion", "box",     "knife",  "statue",   "helmet",   "flute",     "magnet"});

inline constexpr Words kRelations =
    Words::zipf({"under", "behind", "near", "next to", "beside", "in front of", "close to",
                 "opposite", "not far from", "by"});

inline constexpr Words kSpots = Words::zipf(
    {"table",       "door",      "window",     "bridge",   "stove",     "station", "church",
     "bakery",      "well",      "barn",       "fountain", "piano",     "stairs",  "gate",
     "bookcase",    "wardrobe",  "harbour",    "fence",    "school",    "chimney", "mill",
     "cupboard",    "bench",     "lighthouse", "tower",    "boathouse", "sofa",    "fireplace",
     "hotel",       "kiosk",     "greenhouse", "workshop", "library",   "pond",    "castle",
     "sink",        "town hall", "stable",     "theatre",  "oven",      "archway", "pier",
     "post office", "tram stop", "oak tree",   "ferry",    "market",    "cellar"});

inline constexpr std::array<int, 12> kMonthDays = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

constexpr bool is_woman(size_t person) { return person % 2 == 0; }
constexpr std::string_view she_or_he(size_t person) { return is_woman(person) ? "she" : "he"; }
constexpr std::string_view her_or_him(size_t person) { return is_woman(person) ? "her" : "him"; }

constexpr uint64_t only(size_t i) { return uint64_t{1} << i; }  // the set {i}

// "a red" or "an old": writes the article and an adjective, which it returns.
size_t say_a_adjective(Chooser& out);

}  // namespace ballast::text
