// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "ballast/text/corpus_domains.h"
#include "ballast/text/corpus_words.h"

namespace ballast::text {
namespace {

struct Shop {
  Words goods, supplies;
};

constexpr Words kShops =
    Words::zipf({"bakery", "bookshop", "dairy", "smithy", "tailor", "toy shop"});
constexpr std::array<Shop, 6> kStores = {{
    {Words::zipf({"loaves", "rolls", "cakes", "tarts", "pretzels", "rye breads", "biscuits", "buns",
                  "muffins", "waffles", "bagels", "pies"}),
     Words::zipf(
         {"sacks of flour", "crates of butter", "cones of sugar", "trays of eggs", "yeast cakes"})},
    {Words::zipf({"novels", "atlases", "almanacs", "primers", "songbooks", "notebooks", "grammars",
                  "bibles", "comedies", "maps", "diaries", "poems"}),
     Words::zipf(
         {"reams of paper", "bottles of ink", "boxes of pens", "parcels of prints", "bindings"})},
    {Words::zipf({"cheeses", "jugs of milk", "pots of cream", "pats of butter", "curds", "yoghurts",
                  "goat cheeses", "cups of whey", "custards", "wheels of brie"}),
     Words::zipf({"cans of milk", "bags of salt", "cloths", "bales of hay", "churns"})},
    {Words::zipf({"horseshoes", "hinges", "bolts", "axes", "ploughshares", "gates", "hooks",
                  "chains", "knives", "locks", "pokers", "buckles"}),
     Words::zipf({"bars of iron", "loads of coal", "leather straps", "files", "whetstones"})},
    {Words::zipf({"shirts", "coats", "waistcoats", "aprons", "trousers", "cloaks", "gloves",
                  "collars", "gowns", "scarves", "caps", "jackets"}),
     Words::zipf(
         {"bolts of linen", "bolts of wool", "spools of thread", "cards of buttons", "needles"})},
    {Words::zipf({"dolls", "tops", "kites", "wooden horses", "puzzles", "drums", "balls", "puppets",
                  "tin soldiers", "masks", "hoops", "whistles"}),
     Words::zipf({"tins of paint", "planks", "pots of glue", "rolls of felt", "springs"})},
}};
constexpr Words kCustomers = Words::zipf(
    {"Olsen",  "Brown",  "Keller",  "Moreau", "Rossi",  "Novak", "Lind",    "Baker",  "Horvat",
     "Jensen", "Mayer",  "Silva",   "Dubois", "Berg",   "Conti", "Walsh",   "Kovacs", "Janssen",
     "Popov",  "Nagy",   "Fischer", "Murphy", "Santos", "Weber", "Larsen",  "Ricci",  "Turner",
     "Zeman",  "Costa",  "Quinn",   "Holm",   "Marin",  "Petit", "Schmidt", "Vargas", "Dahl",
     "Fuchs",  "Greco",  "Hughes",  "Ivanov", "Jung",   "Kral",  "Lopez",   "Meyer",  "Nowak",
     "Orlov",  "Peters", "Reyes",   "Sand",   "Toth",   "Unger", "Vidal",   "Winter", "Young"});
constexpr Words kInitials = Words::uniform({"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K",
                                            "L", "M", "N", "O", "P", "R", "S", "T", "V", "W", "Z"});
constexpr Words kSuppliers = Words::zipf(
    {"the mill", "Hart and Sons", "the harbour store", "a pedlar", "the cooperative", "Vogel",
     "the abbey", "Grimm Brothers", "the market", "Sweeney", "a cousin", "the wholesaler"});
constexpr Words kOccasions = Words::zipf(
    {"a wedding",     "the fair",    "the school",  "a birthday", "the parish",   "the inn",
     "a journey",     "the mayor",   "a neighbour", "the army",   "the ball",     "an aunt",
     "the harvest",   "the theatre", "a nephew",    "the bishop", "a sick child", "the club",
     "a christening", "the ferry",   "the guild",   "Easter",     "a picnic",     "the winter"});

// "A. Olsen"
struct Customer {
  std::string name;
  int debt;  // in crowns
};

struct Book {
  explicit Book(Chooser& chooser) : out(chooser) {}

  Chooser& out;
  const Shop* shop = nullptr;
  size_t month = 0;
  int date = 0, balance = 0, received = 0, paid = 0;
  std::array<int, 64> goods_prices{}, supply_prices{};  // in crowns; 0: not yet known
  int wage = 0;                                         // 0: not yet known
  size_t helper = 0;
  bool rent_is_due = true;
  std::vector<Customer> customers;
  uint64_t used_names = 0;

  int debt() const {
    int sum = 0;
    for (const Customer& customer : customers) sum += customer.debt;
    return sum;
  }
  // A price is drawn when a thing is first traded and stays the same.
  void write_price(int& crowns) const {
    if (crowns != 0) {
      out.write(crowns);
      return;
    }
    crowns = out.say_number(2, 20);
  }
  void receive(int crowns) {
    received += crowns;
    balance += crowns;
    write_change(crowns);
  }
  void pay(int crowns) {
    paid += crowns;
    balance -= crowns;
    write_change(-crowns);
  }
  void write_change(int crowns) const {
    out.write(crowns < 0 ? " " : " +", crowns, " = ", balance);
  }
};

// "3 loaves at 7": returns the price of all.
int write_purchase(Book& book, const Words& things, std::array<int, 64>& prices) {
  const int count = book.out.say_number(2, 24);
  book.out.write(" ");
  const size_t thing = book.out.say(things);
  book.out.write(" at ");
  book.write_price(prices[thing]);
  return count * prices[thing];
}

// One who came before, or a new one of another name.
Customer& say_customer(Book& book) {
  Chooser& out = book.out;
  if (!book.customers.empty() && out.chance(1, 4)) {
    std::vector<std::string_view> names;
    for (const Customer& customer : book.customers) names.emplace_back(customer.name);
    return book.customers[out.say_one_of(names)];
  }
  const size_t initial = out.say(kInitials);
  out.write(". ");
  const size_t name = out.say(kCustomers, book.used_names);
  book.used_names |= only(name);
  book.customers.push_back({fmt::format("{}. {}", kInitials[initial], kCustomers[name]), 0});
  return book.customers.back();
}

void write_sale(Book& book) {
  book.out.write("sold ");
  const int crowns = write_purchase(book, book.shop->goods, book.goods_prices);
  book.out.write(" to ");
  Customer& customer = say_customer(book);
  if (book.out.chance(1, 2)) {
    book.out.write(" for ");
    book.out.say(kOccasions);
  }
  if (book.out.chance(1, 4)) {
    book.out.write(" owes ", crowns);
    customer.debt += crowns;
  } else {
    book.receive(crowns);
  }
}

void write_debt_payment(Book& book) {
  std::vector<std::string_view> names;
  std::vector<Customer*> debtors;
  for (Customer& customer : book.customers) {
    if (customer.debt == 0) continue;
    names.emplace_back(customer.name);
    debtors.push_back(&customer);
  }
  Customer& customer = *debtors[book.out.say_one_of(names)];
  book.out.write(" settles");
  book.receive(std::exchange(customer.debt, 0));
}

void write_supply(Book& book) {
  book.out.write("bought ");
  const int crowns = write_purchase(book, book.shop->supplies, book.supply_prices);
  book.out.write(" from ");
  book.out.say(kSuppliers);
  book.pay(crowns);
}

void write_wage(Book& book) {
  book.out.write("wages for ");
  if (book.wage == 0) {
    book.helper = book.out.say(kPeople);
    book.wage = 20 + static_cast<int>(book.out.choose_below(50));
  } else {
    book.out.write(kPeople[book.helper]);
  }
  book.pay(book.wage);
}

void write_rent(Book& book) {
  book.rent_is_due = false;
  book.out.write("rent");
  book.pay(80 + 10 * static_cast<int>(book.out.choose_below(30)));
}

void write_entry(Book& book) {
  const uint32_t debts = book.debt() > 0 ? 1 : 0;
  book.out.write(book.date, " ", kMonths[book.month].substr(0, 3), " ");
  switch (book.out.choose({10, 4, 4 * debts, 2, book.rent_is_due ? 1U : 0U})) {
    case 0:
      write_sale(book);
      break;
    case 1:
      write_supply(book);
      break;
    case 2:
      write_debt_payment(book);
      break;
    case 3:
      write_wage(book);
      break;
    default:
      write_rent(book);
  }
  book.out.write("\n");
}

// Steps that would leave the month are excluded.
void next_date(Book& book) {
  std::array<uint32_t, 4> weights = {3, 4, 2, 1};
  for (int step = 0; step < 4; ++step) {
    if (book.date + step > kMonthDays[book.month]) weights[static_cast<size_t>(step)] = 0;
  }
  book.date += static_cast<int>(book.out.choose(weights));
}

void write_totals(const Book& book) {
  book.out.write("Received ", book.received, ", paid ", book.paid, ", owed to us ", book.debt(),
                 ". Closing balance ", book.balance, "\n");
}

}  // namespace

void write_ledger(Chooser& out) {
  Book book(out);
  out.write("Ledger of the ");
  const size_t shop = out.say(kShops);
  book.shop = &kStores[shop];
  out.write(" in ");
  out.say(kTowns);
  out.write(", ");
  book.month = out.say(kMonths);
  out.write(" ");
  out.say_number(1880, 1939);
  out.write("\nOpening balance ");
  book.balance = out.say_number(100, 999);
  out.write("\n");
  book.date = 1 + static_cast<int>(out.choose({4, 3, 2, 1}));
  for (int entries = 1;; ++entries) {
    write_entry(book);
    if (entries >= 6 && (entries == 16 || out.chance(1, 6))) break;
    next_date(book);
  }
  write_totals(book);
}

}  // namespace ballast::text
