// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ballast/config/config.h"

namespace ballast::test {

// Decoders that together have every part; they are for a width of 16.
inline std::vector<std::pair<std::string, std::function<void(config::Config&)>>>
decoder_variants() {
  using namespace config;
  const auto modern = [](Config& c, Activation activation) {
    c.model.positions = Positions::kRope;
    c.model.norm = NormKind::kRms;
    c.model.biases = Biases::kNone;
    c.model.activation = activation;
  };
  const auto in_place = [](Config& c, const std::string& router) {
    c.experts.layers = 1;
    c.experts.count = 8;
    c.experts.groups = 8;
    c.experts.hidden = 8;
    c.experts.placement = Placement::kReplace;
    c.experts.norm = ExpertNorm::kLayer;
    c.experts.router = router;
  };
  return {{"gelu, own output",
           [=](Config& c) {
             c.model.activation = Activation::kGeluTanh;
             c.model.tied = false;
           }},
          {"shared keys, normed heads, swiglu",
           [=](Config& c) {
             modern(c, Activation::kSwiglu);
             c.model.heads = 8;
             c.model.heads_kv = 4;
             c.model.head_width = 4;
             c.model.query_key_norm = QueryKeyNorm::kHead;
             c.model.tied = false;
           }},
          {"queries and keys normed over their width",
           [=](Config& c) {
             modern(c, Activation::kSwiglu);
             c.model.heads = 8;
             c.model.heads_kv = 4;
             c.model.head_width = 4;
             c.model.query_key_norm = QueryKeyNorm::kWidth;
           }},
          {"documents, cap, biases of queries, keys and values",
           [=](Config& c) {
             modern(c, Activation::kRelu2);
             c.model.biases = Biases::kQkv;
             c.model.logit_cap = 4;
             c.model.document_mask = true;
             c.model.separator = 5;
           }},
          {"dropout", [=](Config& c) { c.model.dropout = 0.1; }},
          {"BASE in place",
           [=](Config& c) {
             modern(c, Activation::kSwiglu);
             in_place(c, "base");
           }},
          {"BASE in place, no look-ahead, shared expert",
           [=](Config& c) {
             modern(c, Activation::kRelu2);
             in_place(c, "base");
             c.experts.look_ahead = false;
             c.experts.shared = 1;
           }},
          {"experts with RMSNorms of their own",
           [=](Config& c) {
             modern(c, Activation::kGelu);
             in_place(c, "base");
             c.experts.norm = ExpertNorm::kOwn;
           }},
          {"three experts of a token, not renormalised", [=](Config& c) {
             modern(c, Activation::kSwiglu);
             in_place(c, "sparsely_gated");
             c.experts.per_token = 3;
             c.experts.renormalise = false;
             c.experts.look_ahead = false;
           }}};
}

}  // namespace ballast::test
