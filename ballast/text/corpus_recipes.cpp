// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include "ballast/text/corpus_domains.h"
#include "ballast/text/corpus_words.h"

namespace ballast::text {
namespace {

enum Kind { kPlant, kPiece, kLiquid, kPowder, kSpice, kNumKinds };

// What a savoury or a sweet kitchen has in store. The first dishes are cooked, the others baked.
struct Kitchen {
  Words dishes;
  std::array<Words, kNumKinds> store;
  Words single_pieces;  // the singular of store[kPiece]
};
constexpr size_t kFirstBakedDish = 4;

constexpr std::array<Kitchen, 2> kKitchens = {{
    {Words::zipf({"soup", "stew", "curry", "ragout", "pie", "gratin", "casserole", "quiche"}),
     {Words::zipf({"potatoes",  "carrots",   "tomatoes",   "leeks",    "mushrooms",
                   "beans",     "peas",      "courgettes", "turnips",  "parsnips",
                   "chickpeas", "beetroots", "olives",     "pumpkins", "sprouts",
                   "radishes",  "capers",    "chestnuts",  "shallots", "aubergines"}),
      Words::zipf({"onions", "cloves of garlic", "peppers", "eggs", "lemons", "chillies",
                   "gherkins", "bay leaves", "artichokes", "sausages"}),
      Words::zipf({"stock", "water", "cream", "milk", "white wine", "coconut milk", "tomato juice",
                   "olive oil", "cider", "vinegar"}),
      Words::zipf({"rice", "cheese", "lentils", "flour", "pasta", "barley", "butter", "couscous",
                   "breadcrumbs", "polenta"}),
      Words::zipf({"salt", "pepper", "paprika", "cumin", "thyme", "parsley", "turmeric", "nutmeg",
                   "rosemary", "mustard", "sage", "dill", "coriander", "basil"})},
     Words::zipf({"onion", "clove of garlic", "pepper", "egg", "lemon", "chilli", "gherkin",
                  "bay leaf", "artichoke", "sausage"})},
    {Words::zipf({"compote", "pudding", "porridge", "jam", "cake", "crumble", "tart", "strudel"}),
     {Words::zipf({"apples", "pears", "cherries", "plums", "berries", "apricots", "peaches",
                   "raisins", "figs", "walnuts", "hazelnuts", "dates", "quinces", "currants",
                   "almonds", "mangoes"}),
      Words::zipf({"eggs", "lemons", "oranges", "bananas", "limes", "vanilla pods", "biscuits"}),
      Words::zipf(
          {"milk", "cream", "apple juice", "yoghurt", "buttermilk", "honey", "rum", "syrup"}),
      Words::zipf({"flour", "sugar", "butter", "oats", "semolina", "cocoa", "chocolate", "coconut",
                   "cornflour", "marzipan"}),
      Words::zipf({"cinnamon", "salt", "vanilla", "ginger", "cardamom", "baking powder", "cloves",
                   "saffron", "aniseed"})},
     Words::zipf({"egg", "lemon", "orange", "banana", "lime", "vanilla pod", "biscuit"})},
}};

constexpr Words kManners =
    Words::zipf({"Simple",  "Quick",   "Hearty", "Old",    "Light",  "Summer",       "Winter",
                 "Country", "Festive", "Rich",   "Sunday", "Golden", "Spicy",        "Mild",
                 "Rustic",  "Royal",   "Thick",  "Famous", "Autumn", "Grandmother's"});
constexpr Words kServings =
    Words::zipf({"two", "four", "three", "six", "five", "eight", "seven", "ten"});
constexpr std::array<int, 8> kServingCounts = {2, 4, 3, 6, 5, 8, 7, 10};
constexpr Words kQualities =
    Words::zipf({"fresh", "small", "ripe", "large", "dried", "young", "frozen", "organic", "sweet",
                 "smoked", "soft", "wild", "firm", "tinned"});
constexpr Words kGrades = Words::zipf(
    {"good", "fine", "pure", "mild", "cheap", "cold", "dark", "plain", "strong", "best"});
constexpr Words kSizes =
    Words::zipf({"large", "deep", "wide", "heavy", "small", "clean", "round", "flat"});
constexpr std::array<Words, 2> kVessels = {
    Words::zipf({"pot", "pan", "saucepan", "cauldron", "wok"}),
    Words::zipf({"dish", "tin", "bowl", "mould", "tray"})};
constexpr Words kCleaning =
    Words::zipf({"Wash", "Peel", "Rinse", "Clean", "Sort", "Trim", "Soak", "Dry"});
constexpr Words kCutting = Words::zipf({"chop", "slice", "dice", "halve", "crush", "quarter",
                                        "mash", "grate", "shred", "salt", "flatten", "weigh"});
constexpr std::array<Words, 2> kHeating = {
    Words::zipf({"fry", "boil", "simmer", "brown", "steam", "stew", "roast", "blanch"}),
    Words::zipf({"chill", "warm", "whisk", "marinate", "blend", "knead"})};
constexpr Words kMixing =
    Words::zipf({"Add", "Stir in", "Mix in", "Fold in", "Work in", "Whisk in", "Throw in"});
constexpr Words kPouring = Words::zipf({"Pour in", "Add", "Stir in", "Splash in"});
constexpr std::array<Words, 2> kWaiting = {
    Words::zipf({"Cook", "Simmer", "Boil", "Stir", "Cook gently", "Bubble", "Steep"}),
    Words::zipf({"Wait", "Rest", "Beat", "Cool", "Whisk", "Stir", "Sit down"})};
constexpr Words kSeasoning = Words::zipf(
    {"Season with", "Sprinkle", "Spice with", "Scatter", "Flavour with", "Dust with", "Grind"});
constexpr Words kAdverbs =
    Words::zipf({"slowly",      "gently",         "at once",      "with care",    "bit by bit",
                 "quickly",     "while stirring", "off the heat", "with a spoon", "at the end",
                 "by hand",     "with love",      "in two goes",  "as usual",     "on low heat",
                 "with a fork", "in silence",     "to taste",     "on high heat", "drop by drop"});
constexpr Words kServing =
    Words::zipf({"hot", "warm", "at once", "in deep plates", "cold", "in small bowls", "with pride",
                 "after a rest", "by candlelight", "outdoors"});

struct Ingredient {
  Kind kind;
  size_t index;
  int amount;  // grams, millilitres, pieces or teaspoons
};

struct Recipe {
  Chooser& out;
  const Kitchen& kitchen;
  int servings = 0, minutes = 0;
  size_t baked = 0;  // 0 or 1
  std::string_view vessel;
  std::vector<Ingredient> left;  // listed and not yet used

  std::string_view name(const Ingredient& x) const {
    if (x.kind == kPiece && x.amount == 1) return kitchen.single_pieces[x.index];
    return kitchen.store[x.kind][x.index];
  }
  int unit() const { return 25 * servings; }  // amounts are a multiple of 25 a person
  void say_minutes() {
    out.write(" for ");
    minutes += out.chance(1, 2) ? out.say_number(2, 12) : out.say_number(13, 60);
    out.write(" min");
  }
};

// Writes the amount and its unit: "300 g ", "2 teaspoons ".
int say_amount(Recipe& recipe, Kind kind) {
  Chooser& out = recipe.out;
  int amount = 0;
  if (kind == kPiece || kind == kSpice) {
    amount = out.say_number(1, kind == kPiece ? 9 : 5);
  } else {
    amount = recipe.unit() * static_cast<int>(1 + out.choose({2, 6, 4, 6, 3, 4, 2, 4}));
    out.write(amount);
  }
  const std::string_view spoons = amount == 1 ? " teaspoon " : " teaspoons ";
  out.write(kind == kPiece ? " " : kind == kSpice ? spoons : kind == kLiquid ? " ml " : " g ");
  return amount;
}

void write_ingredients(Recipe& recipe, size_t main) {
  Chooser& out = recipe.out;
  std::array<uint64_t, kNumKinds> used{};
  std::array<uint32_t, kNumKinds> weights = {4, 4, 3, 4, 3};
  std::array<int, kNumKinds> counts{};
  for (int lines = 0; lines < 4 || (lines < 10 && !out.chance(1, 5)); ++lines) {
    out.write("- ");
    // The title has named the first ingredient.
    const auto kind = lines == 0 ? kPlant : static_cast<Kind>(out.choose(weights));
    Ingredient ingredient{kind, main, say_amount(recipe, kind)};
    if (out.chance(1, 2)) {
      out.say(kind == kPlant || kind == kPiece ? kQualities : kGrades);
      out.write(" ");
    }
    if (lines == 0) {
      out.write(recipe.name(ingredient));
    } else {
      const bool is_single = kind == kPiece && ingredient.amount == 1;
      ingredient.index = out.say(
          is_single ? recipe.kitchen.single_pieces : recipe.kitchen.store[kind], used[kind]);
    }
    out.write("\n");
    used[kind] |= only(ingredient.index);
    if (++counts[kind] == 3) weights[kind] = 0;  // no store runs out
    recipe.left.push_back(ingredient);
  }
}

void write_plant_step(Recipe& recipe, const Ingredient& x) {
  Chooser& out = recipe.out;
  out.say(kCleaning);
  out.write(", ");
  out.say(kCutting);
  out.write(" and ");
  out.say(kHeating[recipe.baked]);
  out.write(" the ", recipe.name(x));
  recipe.say_minutes();
}

// Uses all of it, or a part: then the rest comes later.
void write_measured_step(Recipe& recipe, const Ingredient& x) {
  Chooser& out = recipe.out;
  out.say(x.kind == kLiquid ? kPouring : kMixing);
  const int units = x.amount / recipe.unit();
  if (units == 1 || out.chance(2, 3)) {
    out.write(" the ", recipe.name(x));
    return;
  }
  const int part =
      recipe.unit() * static_cast<int>(1 + out.choose_below(static_cast<size_t>(units) - 1));
  const std::string_view unit = x.kind == kLiquid ? " ml" : " g";
  out.write(" ", part, unit, " of the ", recipe.name(x), " and keep ", x.amount - part, unit);
  recipe.left.push_back({x.kind, x.index, x.amount - part});
}

void write_step(Recipe& recipe) {
  Chooser& out = recipe.out;
  const size_t next = out.choose_below(recipe.left.size());
  const Ingredient x = recipe.left[next];
  recipe.left.erase(recipe.left.begin() + static_cast<std::ptrdiff_t>(next));
  if (x.kind == kPlant) {
    write_plant_step(recipe, x);
  } else if (x.kind == kPiece) {
    out.say(kMixing);
    out.write(" the ");
    if (x.amount > 1) out.write(x.amount, " ");
    out.write(recipe.name(x));
  } else if (x.kind == kSpice) {
    out.say(kSeasoning);
    out.write(" the ", recipe.name(x));
  } else {
    write_measured_step(recipe, x);
  }
  if (out.chance(1, 2)) {
    out.write(" ");
    out.say(kAdverbs);
  }
  if (x.kind != kPlant && out.chance(1, 3)) {
    out.write(". ");
    out.say(kWaiting[recipe.baked]);
    recipe.say_minutes();
  }
  out.write(". ");
}

}  // namespace

void write_recipe(Chooser& out) {
  Recipe recipe{out, kKitchens[out.choose_below(2)], 0, 0, 0, {}, {}};
  out.say(kManners);
  out.write(" ");
  const size_t dish = out.say(recipe.kitchen.dishes);
  recipe.baked = dish >= kFirstBakedDish ? 1 : 0;
  out.write(" with ");
  const size_t main = out.say(recipe.kitchen.store[kPlant]);
  out.write(" for ");
  const size_t servings = out.say(kServings);
  recipe.servings = kServingCounts[servings];
  out.write("\n");
  write_ingredients(recipe, main);

  int degrees = 0;
  if (recipe.baked == 1) {
    out.write("Heat the oven to ");
    degrees = 150 + 10 * static_cast<int>(out.choose({1, 2, 3, 4, 5, 4, 2, 1}));
    out.write(degrees, " °C");
  } else {
    out.write("Light the stove");
  }
  out.write(" and take a ");
  out.say(kSizes);
  out.write(" ");
  const Words& vessels = kVessels[recipe.baked];
  recipe.vessel = vessels[out.say(vessels)];
  out.write(". ");
  while (!recipe.left.empty()) write_step(recipe);
  if (recipe.baked == 1) {
    out.write("Bake it at ", degrees, " °C");
  } else {
    out.write("Cover the ", recipe.vessel, " and cook");
  }
  recipe.say_minutes();
  out.write(". Serve the ", recipe.kitchen.dishes[dish], " ");
  out.say(kServing);
  out.write(" to ", kServings[servings], ". Time: ", recipe.minutes, " min.\n");
}

}  // namespace ballast::text
