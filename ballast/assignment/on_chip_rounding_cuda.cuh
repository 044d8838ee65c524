// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_prices_cuda.cuh"

// A balanced assignment at the price of a small gap: experts with too many tokens give up those
// that lose least by the next best expert with room, least first.
namespace ballast::assignment::on_chip {

// What the first block works with, in its arena.
template <int kExperts>
struct Exchange {
  unsigned long long claim[kExperts];  // the least offer to each expert
  int surplus[kExperts];               // tokens above the share; below 0: room
  int begin[kExperts];                 // of each expert's offers in `of_expert`
  int filled[kExperts];
  int givers;
  uint8_t giver[kExperts];  // experts with a surplus at first
  Offer* offers;            // [T]
  uint16_t* of_expert;      // [T]

  // With the offers behind it.
  static size_t bytes(int tokens) {
    return sizeof(Exchange) + static_cast<size_t>(tokens) * (sizeof(Offer) + sizeof(uint16_t));
  }
  template <Meeting kMeeting>
  __device__ static Exchange& in(Chip<kExperts, kMeeting>& c) {
    return *reinterpret_cast<Exchange*>(c.arena());
  }
};

// Where the first block finds all offers: behind its Exchange, or at the desk.
template <int kExperts, Meeting kMeeting>
__device__ inline Offer* first_offers(Chip<kExperts, kMeeting>& c) {
  if (c.at_desk()) return c.desk->offers;
  auto* arena = cooperative_groups::this_cluster().map_shared_rank(c.arena(), 0);
  return reinterpret_cast<Offer*>(arena + sizeof(Exchange<kExperts>));
}

// Each row's offer, to the first block.
template <int kExperts, Meeting kMeeting>
__device__ void make_offers(Chip<kExperts, kMeeting>& c) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  const int lane = threadIdx.x % kLanes;
  Offer* offers = first_offers(c);
  unsigned room = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int e = expert_at<kExperts>(lane, i);
    if (e < c.experts && c.hard[e] < c.even) room |= 1u << i;
  }
  for (int base = 0; base < c.count; base += Layout<kExperts>::kTogether) {
    const int row = base + threadIdx.x / kLanes;
    float value[kValues];
    read_row(c, row, value);
    float best = -INFINITY;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      value[i] -= c.price[expert_at<kExperts>(lane, i)];
      if ((room >> i & 1u) != 0) best = fmaxf(best, value[i]);
    }
    const float top = lanes_max(best, kLanes);
    unsigned at = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) at |= value[i] == top ? room & 1u << i : 0u;
    const unsigned tied = __ballot_sync(kAll, at != 0) & row_lanes<kExperts>();
    if (row >= c.count || static_cast<int>(threadIdx.x % 32) != choose_bit(tied, c.first + row))
      continue;
    const int own = c.own[row];
    const float loss = fmaxf(score_at(c, row, own) - c.price[own] - top, 0);
    Offer offer{};
    offer.loss = c.hard[own] > c.even ? __float_as_uint(loss) : kNoOffer;
    offer.token = static_cast<uint16_t>(c.first + row);
    offer.from = static_cast<uint8_t>(own);
    offer.to = static_cast<uint8_t>(expert_at<kExperts>(lane, choose_bit(at, c.first + row)));
    *reinterpret_cast<uint2*>(&offers[c.first + row]) = *reinterpret_cast<uint2*>(&offer);
  }
}

// Offers by the expert that makes them.
template <int kExperts, Meeting kMeeting>
__device__ void sort_offers(Chip<kExperts, kMeeting>& c, Exchange<kExperts>& x) {
  if (threadIdx.x < kExperts) {
    const int e = threadIdx.x;
    int before = 0;
    for (int other = 0; other < e; ++other) before += c.hard[other] > c.even ? c.hard[other] : 0;
    x.begin[e] = before;
    x.filled[e] = 0;
    x.surplus[e] = e < c.experts ? c.hard[e] - c.even : 0;
    x.claim[e] = ~0ull;
    if (x.surplus[e] > 0) {
      int place = 0;
      for (int other = 0; other < e; ++other) place += c.hard[other] > c.even;
      x.giver[place] = static_cast<uint8_t>(e);
    }
    if (e == kExperts - 1) {
      int all = 0;
      for (int other = 0; other < c.experts; ++other) all += c.hard[other] > c.even;
      x.givers = all;
      x.offers = first_offers(c);
      x.of_expert =
          c.at_desk() ? c.desk->of_expert : reinterpret_cast<uint16_t*>(x.offers + c.tokens);
    }
  }
  __syncthreads();
  // In the tokens' order, since lanes share an expert's offers by their places.
  place_in_order<kExperts>(
      c.tokens, x.filled, reinterpret_cast<int*>(c.warp_sums),
      [&](int t) {
        const Offer offer = x.offers[t];
        return offer.loss == kNoOffer ? kExperts : static_cast<int>(offer.from);
      },
      [&](int t, int from, int place) {
        x.of_expert[x.begin[from] + place] = static_cast<uint16_t>(t);
      });
}

// The least offer of an expert to one that still has room, of those this lane looks at; ~0: none.
// Its bits order by loss, then token; the lowest ones name the receiver.
template <int kExperts>
__device__ inline unsigned long long least_offer(const Exchange<kExperts>& x, int from) {
  unsigned long long least = ~0ull;
  for (int i = threadIdx.x % 32; i < x.filled[from]; i += 32) {
    const Offer offer = x.offers[x.of_expert[x.begin[from] + i]];
    if (offer.loss == kNoOffer || x.surplus[offer.to] >= 0) continue;
    const unsigned long long key = static_cast<unsigned long long>(offer.loss) << 32 |
                                   static_cast<unsigned>(offer.token) << 8 | offer.to;
    least = key < least ? key : least;
  }
  return least;
}

// One turn: every expert with a surplus offers its least, or many of them where it has many; every
// expert with room takes the least of what it is offered. False: no offer was taken.
template <int kExperts, Meeting kMeeting>
__device__ bool trade(Chip<kExperts, kMeeting>& c, Exchange<kExperts>& x) {
  const int warp = threadIdx.x / 32;
  bool taken = false;
  for (int base = 0; base < x.givers; base += kWarps) {
    const int from = base + warp < x.givers ? x.giver[base + warp] : 0;
    unsigned long long key = ~0ull;
    if (base + warp < x.givers && x.surplus[from] > 0) {
      key = least_offer(x, from);
      const bool many = x.surplus[from] >= 32;
      if (!many) {
        const unsigned long long least = exact_cuda::lanes_min(key, 32);
        key = key == least ? key : ~0ull;
      }
      if (key != ~0ull) atomicMin(&x.claim[key & 0xffu], key);
    }
    __syncthreads();
    if (key != ~0ull && x.claim[key & 0xffu] == key) {
      const int to = static_cast<int>(key & 0xffu), token = static_cast<int>(key >> 8 & 0xffffffu);
      atomicAdd(&x.surplus[from], -1);
      x.surplus[to] += 1;  // one taker each
      x.claim[to] = ~0ull;
      x.offers[token].loss = kNoOffer;
      set_own(c, token, to);
      taken = true;
    }
    __syncthreads();
  }
  return __syncthreads_or(taken) != 0;
}

// Makes c.own balanced at c.price, where c.own are the best experts and c.hard their loads.
template <int kExperts, Meeting kMeeting>
__noinline__ __device__ void round_off(Chip<kExperts, kMeeting>& c) {
  // Each round ends with all in balance, or with another expert full.
  for (int round = 0; round <= c.experts; ++round) {
    bool open = false;
    for (int e = threadIdx.x; e < c.experts; e += kThreads) open = open || c.hard[e] > c.even;
    if (__syncthreads_or(open) == 0) return;
    meet(c);  // the arenas are free
    make_offers(c);
    show_own(c);
    meet(c);
    if (c.rank == 0) {
      auto& x = Exchange<kExperts>::in(c);
      sort_offers(c, x);
      while (trade(c, x)) {
      }
      tell_loads(c, x.surplus, 0);
    }
    meet(c);
    take_loads(c);
  }
}

}  // namespace ballast::assignment::on_chip
