// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ballast/config/knobs.h"
#include "ballast/system/error.h"
#include "tests/support/error_of.h"

namespace ballast::config {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Runs of earlier programs had no frame to choose, and were tested greedily.
TEST(RecordedConfig, HasTheFrameThatRunsHadThen) {
  for (const char* router : {"base", "switch", "sparsely_gated"}) {
    SCOPED_TRACE(router);
    Config config;
    read_recorded_config(config, fmt::format("[experts]\nlayers = 1\nrouter = \"{}\"\n", router),
                         "old.toml");
    ExpertsConfig expected{.layers = 1, .router = router};
    take_papers_frame(expected);
    EXPECT_EQ(frame_in_words(config.experts), frame_in_words(expected));
    EXPECT_EQ(config.experts.embedding_gain, 0.1);
    EXPECT_EQ(config.experts.gates_at_experts(), config.experts.router == "base");
    EXPECT_EQ(config.experts.tested_routing(), TestRouting::kGreedy);
  }
}

TEST(RecordedConfig, FromBeforeGapsWereAllowedIsExact) {
  EXPECT_EQ(ExpertsConfig().assignment_gap, 0.001);
  for (const char* old : {"[experts]\nlayers = 1\n", "[experts]\nfeatures = \"normed\"\n", ""}) {
    Config config;
    read_recorded_config(config, old, "old.toml");
    EXPECT_EQ(config.experts.assignment_gap, 0) << old;
  }
  Config config;
  read_recorded_config(config, "[experts]\nassignment_gap = 0.02\n", "new.toml");
  EXPECT_EQ(config.experts.assignment_gap, 0.02);
}

TEST(ExpertsConfig, AllowsAGapOfUpToAHalf) {
  Config config;
  set_knob(config, "experts.assignment_gap", "0");
  EXPECT_EQ(config.experts.assignment_gap, 0);
  set_knob(config, "experts.assignment_gap", "0.5");
  EXPECT_EQ(config.experts.assignment_gap, 0.5);
  for (const char* wrong : {"0.51", "-0.001", "nan", "exact"})
    EXPECT_THROW(set_knob(config, "experts.assignment_gap", wrong), UserError) << wrong;
}

TEST(RecordedConfig, KeepsWhatItSays) {
  Config given;
  given.experts.layers = 1;
  given.experts.features = Features::kRaw;
  given.experts.router_rate = 0.5;
  Config read;
  read_recorded_config(read, to_toml(given), "new.toml");
  EXPECT_TRUE(differences(given, read).empty());
  EXPECT_EQ(read.experts.tested_routing(), TestRouting::kPriced);
  Config old;
  read_recorded_config(old, "[experts]\nlayers = 1\ntest_routing = \"priced\"\n", "old.toml");
  EXPECT_EQ(old.experts.tested_routing(), TestRouting::kPriced);
}

TEST(ExpertsConfig, TellsItsFrameInWords) {
  EXPECT_EQ(frame_in_words(ExpertsConfig()),
            "normed features, softmax gate, cosine scores, 0.25 of the learning rate, look-ahead");
  ExpertsConfig papers;
  take_papers_frame(papers);
  EXPECT_EQ(frame_in_words(papers), "raw features, sigmoid gate, dot scores");
}

TEST(ExpertsConfig, SharedAndFineGrainedExpertsHaveWidthsOfTheirOwn) {
  const ModelConfig model{.width = 64};  // F is 256
  ExpertsConfig experts;
  EXPECT_EQ(experts.width_of_expert(model), 256);
  EXPECT_EQ(experts.width_of_shared(model), 0);
  experts.hidden = 96;
  experts.shared = 0.5;
  EXPECT_EQ(experts.width_of_expert(model), 96);
  EXPECT_EQ(experts.width_of_shared(model), 48);
  experts.shared = 0.001;
  EXPECT_EQ(experts.width_of_shared(model), 8) << "never nothing";
}

TEST(ExpertsConfig, RefusesMoreExpertsOfATokenThanThereAre) {
  Config config;
  config.experts.layers = 1;
  config.experts.count = 4;
  config.experts.per_token = 5;
  EXPECT_THAT(error_of([&] { check_config(config); }), HasSubstr("experts.per_token"));
  config.experts.per_token = 4;
  EXPECT_NO_THROW(check_config(config));
  config.experts.router = "switch";
  EXPECT_THAT(error_of([&] { check_config(config); }), HasSubstr("experts.per_token"));
}

TEST(Config, TokensTravelInChunksOrInTwoHops) {
  Config config;
  config.experts.layers = 1;
  config.experts.chunks = 2;
  EXPECT_NO_THROW(check_config(config));
  config.experts.hops = 2;
  EXPECT_THAT(error_of([&] { check_config(config); }), HasSubstr("experts.chunks"));
}

TEST(Config, TomlRoundTripKeepsEveryKnob) {
  Config config;
  config.model.width = 192;
  config.data.train = {"a \"quoted\" path:0.5", "back\\slash"};
  config.optimizer.learning_rate = 0.1 + 0.2;  // needs all 17 digits
  for (char c = 1; c < 0x20; ++c) config.training.sample_prompt += c;
  config.training.sample_prompt += "\x7f \u20ac";
  config.training.deterministic = true;
  Config copy;
  read_config_text(copy, to_toml(config), "round trip");
  EXPECT_THAT(differences(config, copy), ElementsAre());
  EXPECT_EQ(copy.optimizer.learning_rate, config.optimizer.learning_rate);
}

TEST(Config, ANegativeZeroIsWrittenAndReadAgainWithoutADifference) {
  Config config, copy;
  read_config_text(config, "[optimizer]\nlearning_rate = -0e-3\n", "config.toml");
  EXPECT_FALSE(std::signbit(config.optimizer.learning_rate));
  read_config_text(copy, to_toml(config), "round trip");
  EXPECT_THAT(differences(config, copy), ElementsAre());
}

TEST(Config, UnknownKeyNamesTheNearest) {
  Config config;
  EXPECT_THAT(error_of([&] { set_knob(config, "model.widht", "3"); }),
              HasSubstr("\"model.width\""));
  EXPECT_THAT(error_of([&] { read_config_text(config, "[modle]\nwidth = 3\n", "x.toml"); }),
              ::testing::AllOf(HasSubstr("x.toml, line 1"), HasSubstr("[model]")));
  EXPECT_THAT(error_of([&] { read_config_text(config, "[training]\n\nstep = 3\n", "x.toml"); }),
              ::testing::AllOf(HasSubstr("x.toml, line 3"), HasSubstr("training.steps")));
  EXPECT_THAT(error_of([&] { read_config_text(config, "[training]\nsteep = [1]\n", "x.toml"); }),
              HasSubstr("training.steps"));
}

constexpr const char* kThreeScales = R"(
[gpu.model]
width = 64
[model]
width = 2048
layers = 24
[laptop.training]
steps = 7
)";

TEST(Config, AFileIsReadAtTheScaleThatIsAskedFor) {
  Config paper, gpu, laptop;
  read_config_text(paper, kThreeScales, "x.toml");
  read_config_text(gpu, kThreeScales, "x.toml", "gpu");
  read_config_text(laptop, kThreeScales, "x.toml", "laptop");
  EXPECT_THAT(differences(Config{}, paper),
              ElementsAre("model.width: 128 -> 2048", "model.layers: 4 -> 24"));
  EXPECT_THAT(differences(paper, gpu), ElementsAre("model.width: 2048 -> 64"));
  EXPECT_THAT(differences(paper, laptop), ElementsAre("training.steps: 1000 -> 7"));
}

TEST(Config, AScaleThatAFileLacksIsRefusedWithThoseItHas) {
  Config config;
  const auto read = [&](const char* text, const char* scale) {
    return error_of([&] { read_config_text(config, text, "x.toml", scale); });
  };
  EXPECT_THAT(read("[gpu.model]\nwidth = 3\n", "laptop"),
              ::testing::AllOf(HasSubstr("x.toml"), HasSubstr("[laptop.model]"),
                               HasSubstr("it has: paper, gpu")));
  EXPECT_THAT(read("[model]\nwidth = 3\n", "gpu"), ::testing::EndsWith("it has: paper"));
  EXPECT_THAT(read(kThreeScales, "huge"), HasSubstr("one of paper, gpu, laptop"));
  EXPECT_THAT(differences(Config{}, config), ElementsAre());
}

TEST(Config, MistakesInTheSectionsOfAScaleShowAtEveryScale) {
  for (const std::string& scale : scale_names()) {
    SCOPED_TRACE(scale);
    const auto read = [&](const std::string& text) {
      Config config;
      return error_of(
          [&] { read_config_text(config, "[gpu.data]\n[laptop.data]\n" + text, "x.toml", scale); });
    };
    EXPECT_THAT(read("[gpu.model]\nwidht = 3\n"),
                ::testing::AllOf(HasSubstr("x.toml, line 4"), HasSubstr("\"model.width\"")));
    EXPECT_THAT(read("[gpu.modle]\nwidth = 3\n"),
                ::testing::AllOf(HasSubstr("x.toml, line 3"), HasSubstr("[gpu.model]")));
    EXPECT_THAT(read("[laptop.model]\nwidth = 0\n"), HasSubstr("line 4: model.width"));
    EXPECT_THAT(read("[laptop.gpu]\nwidth = 1\n"), HasSubstr("no section [laptop.gpu]"));
    EXPECT_THAT(read("[labtop.model]\nwidth = 1\n"), HasSubstr("the nearest is [laptop]"));
    EXPECT_THAT(read("[paper.model]\nwidth = 1\n"), HasSubstr("no section [paper]"));
  }
  Config config;
  EXPECT_THAT(error_of([&] { read_config_text(config, "[model]\n[gpu]\nwidth = 3\n", "x"); }),
              HasSubstr("x, line 3: gpu.width stands outside of a section: it belongs below "
                        "[gpu.model]"));
  EXPECT_THAT(error_of([&] { read_config_text(config, "gpu = 3\n", "x"); }),
              HasSubstr("x, line 1: want sections such as [gpu.model]"));
}

TEST(Config, ASectionsNameIsNoKey) {
  const auto read = [](const std::string& text) {
    Config config;
    return error_of([&] { read_config_text(config, text, "x"); });
  };
  EXPECT_THAT(read("seed = 1\nmodel = 5\n"), HasSubstr("x, line 2: model is a section"));
  EXPECT_THAT(read("[[model]]\nwidth = 5\n"), HasSubstr("x, line 1: model is a section"));
  EXPECT_THAT(read("[gpu]\nmodel = 5\n"), HasSubstr("write [gpu.model]"));
  EXPECT_THAT(read("width = 5\n"), HasSubstr("width stands outside of a section: it belongs below "
                                             "[model]"));
  EXPECT_THAT(read("colour = 5\n"), HasSubstr("colour stands outside of a section"));
  EXPECT_THAT(read("[model.width]\nvalue = 5\n"), HasSubstr("model.width: want a plain value"));
}

TEST(Config, AModelThatCannotBeCountedIsRefused) {
  Config config;
  set_knob(config, "model.width", "1048576");
  set_knob(config, "model.hidden", "4194304");
  set_knob(config, "experts.layers", "1");
  set_knob(config, "experts.sublayers", "10000");
  set_knob(config, "experts.count", "16384");
  EXPECT_THAT(error_of([&] { check_config(config); }), HasSubstr("parameters; want at most"));
}

TEST(Config, RefusesWrongTypesAndRanges) {
  Config config;
  const auto set = [&](const char* key, const char* value) {
    return error_of([&] { set_knob(config, key, value); });
  };
  EXPECT_THAT(set("model.width", "0"), HasSubstr("from 1 to"));
  EXPECT_THAT(set("model.width", "many"), HasSubstr("whole number"));
  EXPECT_THAT(set("model.width", "1.5"), HasSubstr("whole number"));
  EXPECT_THAT(set("model.width", ""), HasSubstr("whole number"));
  EXPECT_THAT(set("optimizer.learning_rate", "nan"), HasSubstr("want a value"));
  EXPECT_THAT(set("optimizer.beta1", "1"), HasSubstr("want a value"));
  EXPECT_THAT(set("training.device", "gpu"), HasSubstr("cpu"));
  EXPECT_THAT(set("training.deterministic", "yes"), HasSubstr("true or false"));
  EXPECT_THAT(set("training.max_time", "10 minutes"),
              ::testing::AllOf(HasSubstr("training.max_time"), HasSubstr("90s")));
  EXPECT_THAT(set("training.sample_prompt", "\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of([&] { read_config_text(config, "[model]\nwidth = [1]\n", "x"); }),
              HasSubstr("got a list"));
  EXPECT_THAT(error_of([&] { read_config_text(config, "[model\n", "x.toml"); }),
              HasSubstr("x.toml, line 1"));
  EXPECT_THAT(differences(Config{}, config), ElementsAre()) << "a refused value must not be kept";
}

TEST(Config, AcceptsTheUsualSpellings) {
  Config config;
  set_knob(config, "data.builtin_bytes", "2e6");
  set_knob(config, "training.steps", "1_000");
  set_knob(config, "training.max_time", "1.5m");
  set_knob(config, "data.train", "a:0.3,b:0.7");
  EXPECT_EQ(config.data.builtin_bytes, 2'000'000);
  EXPECT_EQ(config.training.steps, 1000);
  EXPECT_EQ(config.training.max_time, 90);
  EXPECT_THAT(config.data.train, ElementsAre("a:0.3", "b:0.7"));
}

TEST(Config, ChecksValuesAgainstEachOther) {
  Config config;
  config.model.heads = 3;
  EXPECT_THAT(error_of([&] { check_config(config); }), HasSubstr("do not divide"));
  config = {};
  config.training.micro_steps = 5;
  EXPECT_THAT(error_of([&] { check_config(config); }), HasSubstr("micro-steps"));
}

TEST(Config, LayersOfExpertsStandInPlaceOfFeedForwards) {
  ExpertsConfig experts{.layers = 12, .placement = Placement::kReplace};
  EXPECT_THAT(experts.places(24), ElementsAre(2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24));
  EXPECT_EQ(experts.sublayers_of_layer(), 1);
  experts.layers = 2;
  EXPECT_THAT(experts.places(5), ElementsAre(2, 5));
  EXPECT_EQ(experts.training_capacity(), 1.0);
  experts.router = "sparsely_gated";
  EXPECT_EQ(experts.training_capacity(), 2.0);
  experts.capacity = 0;
  EXPECT_EQ(experts.training_capacity(), 0.0);
}

TEST(Config, ModelParallelWorkersDivideTheModel) {
  Config config;
  config.model = {.vocabulary = 10, .width = 16, .layers = 2, .heads = 4, .context = 8};
  config.training.batch = 2;
  config.training.model_parallel = 4;
  EXPECT_NO_THROW(check_workers(config, 8));
  EXPECT_EQ(
      error_of([&] { check_workers(config, 6); }),
      "--model-parallel (training.model_parallel): 6 workers cannot be divided into groups of "
      "4; with 6 workers 1, 2 would do");
  EXPECT_THAT(error_of([&] { check_workers(config, 1); }),
              HasSubstr("1 worker cannot be divided into groups of 4; with 1 worker 1 would do"));
  EXPECT_THAT(error_of([&] { check_workers(config, 16); }),
              HasSubstr("among 4 replicas; with this config 4, 8 would do"));
  config.model.heads = 2;
  EXPECT_THAT(error_of([&] { check_workers(config, 8); }), HasSubstr("model.heads: 2 heads"));
  config.model.heads = 4;
  config.model.hidden = 10;
  EXPECT_THAT(error_of([&] { check_workers(config, 8); }), HasSubstr("model.hidden: 10"));
  config.model.hidden = 0;
  config.model.vocabulary = 6;  // 2 each: nothing is left for the last
  EXPECT_THAT(error_of([&] { check_workers(config, 8); }), HasSubstr("model.vocabulary: 6"));
  config.model.vocabulary = 7;
  EXPECT_NO_THROW(check_workers(config, 8));
}

TEST(Config, EveryKnobHasAHelpTextAndAUniqueName) {
  Config config;
  std::vector<std::string> names;
  for (const Knob& knob : knobs(config)) {
    EXPECT_FALSE(knob.help.empty()) << knob.name();
    names.push_back(knob.name());
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

}  // namespace
}  // namespace ballast::config
