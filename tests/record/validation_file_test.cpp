// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/validation_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ballast/system/file.h"
#include "tests/support/temporary_folder.h"

namespace ballast::record {
namespace {

using test::TemporaryFolder;

TEST(LastValidation, IsReadAsItIsDocumented) {
  const TemporaryFolder folder;
  write_text_atomically(folder / "validation.json",
                        R"({"format": "ballast-validation", "version": 1,
    "step": 7, "tokens": 90, "windows": 3, "split_tokens": 90, "split_windows": 3,
    "whole_split": true, "system": "BASE x1", "floor_per_token": null,
    "routings": [{"routing": "greedy", "loss": 1.5, "bits_per_byte": null,
      "domains": [{"name": "law", "tokens": 9, "loss": 1.25}],
      "layers": [{"layer": 2, "name": "BASE layer 2", "loads": [5, 4], "domain_loads": [[3], [1]],
        "domain_bits": 0.5, "experts": [{"expert": 1, "previous": [],
          "tokens": [{"id": 17, "text": " year", "count": 3, "lift": 2.5}]}]}]}]})");
  const LastValidation validation = read_validation(folder / "validation.json");
  EXPECT_EQ(validation.step, 7);
  EXPECT_EQ(validation.windows, 3);
  EXPECT_EQ(validation.split_tokens, 90);
  EXPECT_EQ(validation.split_windows, 3);
  EXPECT_TRUE(validation.whole_split);
  EXPECT_TRUE(std::isnan(validation.floor));
  EXPECT_EQ(validation.find("priced"), nullptr);
  const RoutingUse& greedy = *validation.main();
  EXPECT_EQ(greedy.domains.front().name, "law");
  EXPECT_EQ(greedy.domains.front().loss, 1.25);
  const LayerUse& layer = greedy.layers.front();
  EXPECT_THAT(layer.loads, testing::ElementsAre(5, 4));
  EXPECT_EQ(layer.domain_loads[1][0], 1);
  EXPECT_EQ(layer.experts.front().tokens.front().text, " year");
  EXPECT_EQ(layer.experts.front().tokens.front().lift, 2.5);
  EXPECT_TRUE(std::isnan(layer.token_bits));
}

TEST(LastValidation, OfMetricsHasLossesAndLoads) {
  const auto record = nlohmann::json::parse(R"({"step": 5, "valid_loss": 2.5, "valid_tokens": 8,
    "valid_windows": 2, "split_tokens": 40, "split_windows": 10, "whole_split": false,
    "valid_floor": 0.5, "experts": [{"layer": 2, "loads": [6, 2], "domain_information_bits": 0.2}],
    "second_experts": [{"layer": 2, "loads": [4, 4]}],
    "other_routing": {"routing": "priced", "loss": 2.25, "experts": [{"layer": 2, "loads": [5, 3]}]}})");
  const LastValidation validation = validation_of_metrics(record);
  EXPECT_EQ(validation.floor, 0.5);
  EXPECT_EQ(validation.windows, 2);
  EXPECT_EQ(validation.split_tokens, 40);
  EXPECT_EQ(validation.split_windows, 10);
  EXPECT_FALSE(validation.whole_split);
  const RoutingUse& main = validation.routings.front();
  EXPECT_EQ(main.routing, "") << "metrics.jsonl does not name it";
  EXPECT_EQ(main.loss, 2.5);
  EXPECT_THAT(main.layers[0].second_loads, testing::ElementsAre(4, 4));
  EXPECT_EQ(main.layers[0].name, "layer 2");
  EXPECT_EQ(validation.find("priced")->loss, 2.25);
  EXPECT_THAT(validation.find("priced")->layers[0].loads, testing::ElementsAre(5, 3));
}

TEST(LastValidation, WrittenAndReadItIsTheSame) {
  const TemporaryFolder folder;
  LastValidation validation{.step = 7, .tokens = 90, .whole_split = true, .system = "BASE x1"};
  LayerUse layer{.layer = 2, .name = "BASE layer 2", .loads = {5, 4}};
  layer.domain_loads = {{3}, {1}};
  layer.experts = {{.expert = 1, .tokens = {{" year", 3, 2.5, 17}}}};
  validation.routings = {{.routing = "greedy", .loss = 1.5, .domains = {{"law", 9, 1.25}}},
                         {.routing = "balanced", .loss = 1.25, .domains = {{"law", 9, 1}}}};
  for (RoutingUse& routing : validation.routings) routing.layers = {layer};
  const auto file = folder / "validation.json", again = folder / "again.json";
  EXPECT_FALSE(is_validation_file(file));
  write_validation(file, validation);
  EXPECT_TRUE(is_validation_file(file));
  const LastValidation read = read_validation(file);
  write_validation(again, read);
  EXPECT_EQ(read_text(again), read_text(file));
  EXPECT_EQ(read.system, "BASE x1");
  EXPECT_EQ(read.main()->layers[0].experts[0].tokens[0].id, 17);
  EXPECT_TRUE(std::isnan(read.floor));
  EXPECT_TRUE(read.find("balanced")->domains.empty()) << "it sees the future";
  EXPECT_TRUE(read.find("balanced")->layers[0].experts.empty());
}

}  // namespace
}  // namespace ballast::record
