// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Where the shuffle brings tokens. constexpr, so that kernels on a GPU compute the same.
namespace ballast::experts {

struct GroupRange {
  int64_t begin = 0, end = 0;
};

struct ShuffleShape {
  int64_t groups = 1;             // G, over all workers
  int64_t tokens_of_group = 0;    // T/G
  int64_t rank = 0, workers = 1;  // workers divide groups

  constexpr int64_t local() const { return groups / workers; }
  constexpr GroupRange groups_of(int64_t worker) const {
    return {worker * local(), (worker + 1) * local()};
  }
  constexpr GroupRange own() const { return groups_of(rank); }
};

// What this worker sends of one of its groups to one of all groups.
struct SentPart {
  int64_t first, size;  // points of the order in which its group is cut
  int64_t slot;         // of the first token in what is sent
};

// What it receives from one of all groups for one of its own.
struct ReceivedPart {
  int64_t size;
  int64_t arrival, place;  // of the first token: as it comes, and in its group
};

// Every group gets a part of each group. Where G does not divide T/G some tokens of each group are
// left over: they go to groups in turn, one each, and the next group's go on from there.
class ShuffleParts {
 public:
  constexpr explicit ShuffleParts(const ShuffleShape& shape)
      : shape_(shape),
        local_(shape.local()),
        own_(shape.own()),
        size_(shape.tokens_of_group / shape.groups),
        rest_(shape.tokens_of_group % shape.groups) {}

  constexpr int64_t local() const { return local_; }
  constexpr GroupRange own() const { return own_; }

  // How many tokens of these groups go to those.
  constexpr int64_t tokens(GroupRange from, GroupRange to) const {
    const int64_t equal = (from.end - from.begin) * (to.end - to.begin) * size_;
    return rest_ == 0 ? equal : equal + left_over(from, to.end) - left_over(from, to.begin);
  }

  // Parts are sent by group they go to, then by group of origin.
  constexpr SentPart sent(int64_t from, int64_t to) const {
    return {.first = tokens({from, from + 1}, {0, to}),
            .size = tokens({from, from + 1}, {to, to + 1}),
            .slot = tokens(own_, {0, to}) + tokens({own_.begin, from}, {to, to + 1})};
  }

  // They arrive by worker, then group, then group of origin; a group's tokens belong together.
  constexpr ReceivedPart received(int64_t from, int64_t to) const {
    const GroupRange sender = shape_.groups_of(from / local_);
    return {
        .size = tokens({from, from + 1}, {to, to + 1}),
        .arrival = tokens({0, sender.begin}, own_) + tokens(sender, {own_.begin, to}) +
                   tokens({sender.begin, from}, {to, to + 1}),
        .place = tokens({0, shape_.groups}, {own_.begin, to}) + tokens({0, from}, {to, to + 1})};
  }

 private:
  constexpr int64_t left_over(GroupRange from, int64_t before) const {
    return turns(from.end * rest_, before) - turns(from.begin * rest_, before);
  }
  // Of the first `count` turns, those of groups before this one.
  constexpr int64_t turns(int64_t count, int64_t before) const {
    const int64_t rounds = count / shape_.groups, more = count - rounds * shape_.groups;
    return rounds * before + (more < before ? more : before);
  }

  ShuffleShape shape_;
  int64_t local_;
  GroupRange own_;
  int64_t size_, rest_;
};

// A permutation and its inverse, [2, size]: both get that `at` goes to `value`.
constexpr void set_both(int64_t* both, int64_t size, int64_t at, int64_t value) {
  both[at] = value;
  both[size + value] = at;
}

}  // namespace ballast::experts
