// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/corpus_domains.h"

namespace ballast {

const Words kPeople = Words::zipf(
    {"Anna",  "Ben",   "Clara",  "David",  "Emma",   "Felix",  "Greta", "Henry",  "Ida",   "Jonas",
     "Karin", "Leo",   "Marta",  "Nils",   "Olga",   "Paul",   "Rosa",  "Simon",  "Tilda", "Victor",
     "Wanda", "Oscar", "Yara",   "Adam",   "Bella",  "Carl",   "Dora",  "Erik",   "Flora", "Georg",
     "Hanna", "Ivan",  "Julia",  "Konrad", "Lena",   "Martin", "Nora",  "Otto",   "Paula", "Robert",
     "Sara",  "Tom",   "Vera",   "Walter", "Zoe",    "Max",    "Mira",  "Ralf",   "Edith", "Bruno",
     "Agnes", "Hugo",  "Lotte",  "Kurt",   "Stella", "Jakob",  "Thea",  "Magnus", "Alma",  "Rudolf",
     "Fanny", "Emil",  "Sophie", "Anton"});

const Words kTowns = Words::zipf(
    {"Bergen",  "Lisbon", "Turin",   "Oslo",    "Ghent",   "Vienna", "Porto",    "Malmo",
     "Cork",    "Riga",   "Basel",   "Granada", "Leeds",   "Tartu",  "Nantes",   "Gdansk",
     "Trieste", "Aarhus", "Split",   "Bologna", "Utrecht", "Bath",   "Narvik",   "Seville",
     "Dublin",  "Krakow", "Verona",  "Lyon",    "Tampere", "Bremen", "Salzburg", "Dundee",
     "Antwerp", "Genoa",  "Vilnius", "Odense",  "Cadiz",   "Graz",   "Rennes",   "Uppsala",
     "Padua",   "Galway", "Lucerne", "Sopron"});

const Words kWeekdays =
    Words::uniform({"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"});

const Words kMonths =
    Words::uniform({"January", "February", "March", "April", "May", "June", "July", "August",
                    "September", "October", "November", "December"});

const Words kAdjectives = Words::zipf(
    {"red",      "old",     "small",     "blue",    "green",    "new",     "black",    "heavy",
     "yellow",   "broken",  "silver",    "striped", "white",    "wooden",  "borrowed", "empty",
     "golden",   "round",   "dusty",     "strange", "purple",   "tiny",    "brown",    "orange",
     "painted",  "cheap",   "leather",   "soft",    "enormous", "rusty",   "grey",     "woollen",
     "polished", "crooked", "copper",    "warm",    "pink",     "elegant", "plastic",  "hollow",
     "famous",   "curved",  "expensive", "faded",   "square",   "ancient", "spotted",  "velvet",
     "ugly",     "patched", "iron",      "narrow",  "foreign",  "bright",  "oval",     "carved",
     "light",    "muddy",   "noisy",     "plain",   "fragile",  "odd",     "secret",   "simple"});

const Words kObjects = Words::zipf(
    {"umbrella", "key",       "bag",     "book",   "coat",     "lamp",     "bicycle",   "camera",
     "hat",      "notebook",  "chair",   "clock",  "map",      "scarf",    "ladder",    "guitar",
     "bottle",   "basket",    "watch",   "mirror", "kettle",   "violin",   "suitcase",  "teapot",
     "kite",     "torch",     "blanket", "hammer", "vase",     "drum",     "telescope", "rope",
     "painting", "mug",       "carpet",  "bell",   "compass",  "trumpet",  "lantern",   "stool",
     "pillow",   "whistle",   "cushion", "anchor", "candle",   "barrel",   "puppet",    "saddle",
     "wallet",   "globe",     "shovel",  "mask",   "envelope", "necklace", "razor",     "tent",
     "ribbon",   "accordion", "box",     "knife",  "statue",   "helmet",   "flute",     "magnet"});

const Words kRelations = Words::zipf({"under", "behind", "near", "next to", "beside", "in front of",
                                      "close to", "opposite", "not far from", "by"});

const Words kSpots = Words::zipf(
    {"table",       "door",      "window",     "bridge",   "stove",     "station", "church",
     "bakery",      "well",      "barn",       "fountain", "piano",     "stairs",  "gate",
     "bookcase",    "wardrobe",  "harbour",    "fence",    "school",    "chimney", "mill",
     "cupboard",    "bench",     "lighthouse", "tower",    "boathouse", "sofa",    "fireplace",
     "hotel",       "kiosk",     "greenhouse", "workshop", "library",   "pond",    "castle",
     "sink",        "town hall", "stable",     "theatre",  "oven",      "archway", "pier",
     "post office", "tram stop", "oak tree",   "ferry",    "market",    "cellar"});

size_t say_a_adjective(Chooser& out) {
  static const uint64_t starts_with_vowel = [] {
    uint64_t set = 0;
    for (size_t i = 0; i < kAdjectives.size(); ++i) {
      if (std::string_view("aeiou").find(kAdjectives[i][0]) != std::string_view::npos)
        set |= only(i);
    }
    return set;
  }();
  const bool vowel = out.chance(1, 5);
  out.write(vowel ? "an " : "a ");
  return out.say(kAdjectives, vowel ? ~starts_with_vowel : starts_with_vowel);
}

}  // namespace ballast
