// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>
#include <vector>

#include "ballast/text/corpus_domains.h"
#include "ballast/text/corpus_words.h"

namespace ballast::text {
namespace {

constexpr Words kGreetings =
    Words::zipf({"Good to see you", "Hello", "There you are", "What a surprise", "Hello again",
                 "Good day", "Welcome back", "Finally"});
constexpr Words kMoods =
    Words::zipf({"I am fine", "I am tired", "I am in a hurry", "I feel great", "I could be better",
                 "I am hungry", "I have a cold", "I am late", "I am quite happy", "I slept badly"});
// The same verbs in the past and plain: "found" and "find".
constexpr Words kDid = Words::zipf(
    {"found",    "bought",   "lost",     "painted",  "sold",     "saw",     "left",    "hid",
     "repaired", "forgot",   "broke",    "drew",     "borrowed", "cleaned", "dropped", "noticed",
     "buried",   "tested",   "stole",    "admired",  "weighed",  "wrapped", "washed",  "kicked",
     "polished", "sketched", "measured", "unpacked", "kept",     "missed",  "tried",   "moved",
     "burned",   "lifted",   "opened",   "shook",    "touched",  "emptied", "filmed",  "wanted",
     "carved",   "rented",   "caught",   "hated",    "mended",   "rolled",  "chose",   "won"});
constexpr Words kDo =
    Words::zipf({"find",   "buy",    "lose",    "paint",  "sell",   "see",   "leave",  "hide",
                 "repair", "forget", "break",   "draw",   "borrow", "clean", "drop",   "notice",
                 "bury",   "test",   "steal",   "admire", "weigh",  "wrap",  "wash",   "kick",
                 "polish", "sketch", "measure", "unpack", "keep",   "miss",  "try",    "move",
                 "burn",   "lift",   "open",    "shake",  "touch",  "empty", "film",   "want",
                 "carve",  "rent",   "catch",   "hate",   "mend",   "roll",  "choose", "win"});
constexpr Words kTimes = Words::zipf(
    {"yesterday",        "last night",       "this morning", "on Monday",   "last week",
     "in May",           "two days ago",     "at noon",      "after lunch", "an hour ago",
     "on Friday",        "before breakfast", "in the rain",  "by mistake",  "last summer",
     "at midnight",      "in the storm",     "all alone",    "at dawn",     "in a hurry",
     "with Grandfather", "on Sunday",        "last winter",  "in the dark", "with both hands",
     "at Easter",        "for a friend",     "in June",      "at sunset",   "without a word",
     "for fun",          "on Tuesday"});
constexpr Words kReactions =
    Words::zipf({"Really", "How nice", "I had no idea", "Not again", "Oh dear", "Wonderful",
                 "Poor you", "I see", "Well done", "Strange", "Good heavens", "Lucky you",
                 "What a pity", "No wonder", "Bravo", "Never mind"});
constexpr Words kSurely =
    Words::zipf({"I think", "surely", "as I said", "of course", "believe me", "I hope"});
constexpr Words kActivities =
    Words::zipf({"go swimming", "visit the museum", "have dinner", "play chess", "see a film",
                 "paint the fence", "go for a walk", "cook something", "go to the concert",
                 "repair the boat", "go dancing", "pick cherries", "learn Latin", "feed the ducks",
                 "play cards", "climb the tower"});
constexpr Words kHours =
    Words::zipf({"seven", "eight", "six", "five", "nine", "four", "ten", "three"});
constexpr Words kAgreement =
    Words::zipf({"Gladly", "Good idea", "Why not", "With pleasure", "If you like"});
constexpr Words kNews = Words::zipf(
    {"has a boat",      "has moved",         "dances now",     "has a new job",  "writes novels",
     "is back",         "lost the election", "keeps bees",     "sold the house", "builds walls",
     "won a prize",     "plays the harp",    "speaks Greek",   "has married",    "is ill",
     "collects stamps", "is a baker now",    "bought a horse", "hates the city", "sings well",
     "is in prison",    "travels a lot",     "paints ships",   "went to sea"});
constexpr Words kContacts =
    Words::zipf({"call", "visit", "write to", "congratulate", "ask", "warn", "help"});
constexpr Words kGoods =
    Words::zipf({"plates", "chairs", "tickets", "roses", "pens", "towels", "records", "pillows",
                 "tiles", "bulbs", "fish", "glasses", "knives", "melons"});
constexpr Words kDrinks = Words::zipf({"tea", "coffee", "water", "lemonade", "cocoa", "cider",
                                       "milk", "apple juice", "soup", "beer"});
constexpr Words kExcuses =
    Words::zipf({"I have to go now", "It is getting late", "My bus is coming",
                 "They are waiting for me", "I must hurry"});
constexpr Words kFarewells =
    Words::zipf({"Take care", "See you soon", "All the best", "Have a good day"});

// "under the table", "behind the red barn"
struct Place {
  size_t relation, spot;
  std::optional<size_t> adjective;
};
// "I found an old key under the table yesterday."
struct Event {
  size_t who, verb, adjective, object;
  Place place;
  size_t time;
};
struct Plan {
  size_t day, hour;
};

struct Scene {
  Chooser& out;
  std::array<size_t, 2> people;
  size_t speaker;  // 0 or 1
  std::vector<Event> events;
  std::optional<Plan> plan;
  uint64_t used_objects, used_people;  // named once only: questions have one answer

  std::string_view name() const { return kPeople[people[speaker]]; }
  std::string_view other_name() const { return kPeople[people[1 - speaker]]; }
  void begin_line() { out.write(name(), ": "); }
  void end_line() {
    out.write("\n");
    speaker = 1 - speaker;
  }
  void next_line() {
    end_line();
    begin_line();
  }
  void write_place(const Place& place) const {
    out.write(kRelations[place.relation], " the ");
    if (place.adjective) out.write(kAdjectives[*place.adjective], " ");
    out.write(kSpots[place.spot]);
  }
  std::vector<size_t> events_of_other() const {
    std::vector<size_t> indices;
    for (size_t i = 0; i < events.size(); ++i) {
      if (events[i].who != speaker) indices.push_back(i);
    }
    return indices;
  }
};

Place say_place(Chooser& out) {
  Place place{};
  place.relation = out.say(kRelations);
  out.write(" the ");
  if (out.chance(1, 2)) {
    place.adjective = out.say(kAdjectives);
    out.write(" ");
  }
  place.spot = out.say(kSpots);
  return place;
}

// "I found an old key "
void say_deed(Scene& scene, Event& event) {
  Chooser& out = scene.out;
  event.who = scene.speaker;
  out.write("I ");
  event.verb = out.say(kDid);
  out.write(" ");
  event.adjective = say_a_adjective(out);
  out.write(" ");
  event.object = out.say(kObjects, scene.used_objects);
  scene.used_objects |= only(event.object);
  out.write(" ");
}

void tell_event(Scene& scene) {
  Chooser& out = scene.out;
  Event event{};
  say_deed(scene, event);
  event.place = say_place(out);
  out.write(" ");
  event.time = out.say(kTimes);
  out.write(".");
  scene.events.push_back(event);
  scene.next_line();
  out.say(kReactions);
  const size_t answer = out.choose({2, 7, 2});
  if (answer == 0) {
    out.write("!");
    return;
  }
  if (answer == 1) {
    out.write("! ");
    Event second = event;  // at the same place
    say_deed(scene, second);
    out.write("there ");
    second.time = out.say(kTimes);
    out.write(".");
    scene.events.push_back(second);
    return;
  }
  out.write(". Was the ", kObjects[event.object], " ");
  const bool right = out.chance(1, 3);
  if (right) {
    out.write(kAdjectives[event.adjective]);
  } else {
    out.say(kAdjectives, only(event.adjective));
  }
  out.write("?");
  scene.next_line();
  out.write(right ? "Yes, " : "No, ", kAdjectives[event.adjective], ".");
}

void recall_event(Scene& scene) {
  Chooser& out = scene.out;
  const std::vector<size_t> indices = scene.events_of_other();
  const Event& event = scene.events[indices[out.choose_below(indices.size())]];
  if (out.chance(1, 2)) {
    out.write("Where did you ", kDo[event.verb], " the ", kObjects[event.object], "?");
    scene.next_line();
    out.write("It was ");
    scene.write_place(event.place);
    out.write(", ");
  } else {
    out.write("What about the ", kObjects[event.object], "?");
    scene.next_line();
    out.write("I ", kDid[event.verb], " it ", kTimes[event.time], ", ");
  }
  out.say(kSurely);
  out.write(".");
}

void make_plan(Scene& scene) {
  Chooser& out = scene.out;
  Plan plan{};
  out.write("Shall we ");
  out.say(kActivities);
  out.write(" on ");
  plan.day = out.say(kWeekdays);
  out.write("?");
  scene.next_line();
  out.say(kAgreement);
  out.write(". At ");
  plan.hour = out.say(kHours);
  out.write("?");
  scene.next_line();
  out.write(kWeekdays[plan.day], " at ", kHours[plan.hour], ", then.");
  scene.plan = plan;
}

void tell_news(Scene& scene) {
  Chooser& out = scene.out;
  const size_t person = out.say(kPeople, scene.used_people);
  scene.used_people |= only(person);
  out.write(" ");
  out.say(kNews);
  out.write(".");
  scene.next_line();
  out.say(kReactions);
  out.write("! I must ");
  out.say(kContacts);
  out.write(" ", her_or_him(person), ".");
}

void tell_price(Scene& scene) {
  Chooser& out = scene.out;
  const int count = out.say_number(2, 12);
  out.write(" ");
  out.say(kGoods);
  out.write(" at ");
  const int each = out.say_number(2, 30);
  out.write(" euros!");
  scene.next_line();
  out.write("That makes ", count * each, ".");
}

void offer_drink(Scene& scene) {
  Chooser& out = scene.out;
  out.write("Some ");
  const size_t first = out.say(kDrinks);
  out.write(" or ");
  const size_t second = out.say(kDrinks, only(first));
  out.write("?");
  scene.next_line();
  const size_t taken = out.chance(1, 3) ? second : first;
  out.write("The ", kDrinks[taken], ", please, ", scene.other_name(), ".");
}

void write_exchange(Scene& scene) {
  const uint32_t can_recall = scene.events_of_other().empty() ? 0 : 1;
  switch (scene.out.choose({12, 3 * can_recall, scene.plan ? 0U : 1U, 3, 2, 1})) {
    case 0:
      return tell_event(scene);
    case 1:
      return recall_event(scene);
    case 2:
      return make_plan(scene);
    case 3:
      return tell_news(scene);
    case 4:
      return tell_price(scene);
    default:
      return offer_drink(scene);
  }
}

void write_farewell(Scene& scene) {
  Chooser& out = scene.out;
  scene.begin_line();
  out.say(kExcuses);
  out.write(". ");
  if (scene.plan) {
    out.write("See you on ", kWeekdays[scene.plan->day], " at ", kHours[scene.plan->hour], ".");
  } else {
    out.say(kFarewells);
    out.write(".");
  }
  scene.next_line();
  out.write("Goodbye, ", scene.other_name(), ".\n");
}

}  // namespace

void write_dialogue(Chooser& out) {
  Scene scene{out, {}, 0, {}, {}, 0, 0};
  scene.people[0] = out.say(kPeople);
  out.write(" and ");
  scene.people[1] = out.say(kPeople, only(scene.people[0]));
  scene.used_people = only(scene.people[0]) | only(scene.people[1]);
  out.write(" meet ");
  say_place(out);
  out.write(" in ");
  out.say(kTowns);
  out.write(".\n");

  scene.begin_line();
  out.say(kGreetings);
  out.write(", ", scene.other_name(), "!");
  scene.next_line();
  out.say(kMoods);
  out.write(", ", scene.other_name(), ".");
  scene.end_line();
  for (int exchanges = 0; exchanges < 4 || (exchanges < 10 && !out.chance(1, 5)); ++exchanges) {
    scene.begin_line();
    write_exchange(scene);
    scene.end_line();
  }
  write_farewell(scene);
}

}  // namespace ballast::text
