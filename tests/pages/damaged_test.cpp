// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "ballast/studio/pages/sections.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "tests/pages/run_folder.h"
#include "tests/support/temporary_folder.h"

namespace ballast::pages {
namespace {

using nlohmann::json;
using test::TemporaryFolder;

constexpr const char* kValidation = R"({"format": "ballast-validation", "version": 1, "step": 2,
  "tokens": 90, "whole_split": true, "system": "BASE x1", "floor_per_token": 0.5,
  "routings": [{"routing": "greedy", "loss": 1.5, "perplexity": 4.5, "bits_per_byte": 1.0,
    "domains": [{"name": "law", "tokens": 9000, "loss": 1.25},
      {"name": "news", "tokens": 2000, "loss": 2}],
    "layers": [{"layer": 2, "name": "BASE layer 2", "loads": [5, 4], "second_loads": [1, 8],
      "domain_loads": [[3, 2], [1, 3]], "domain_bits": 0.5, "token_bits": 0.5, "previous_bits": 0.1,
      "experts": [{"expert": 1, "previous": [{"id": 1, "text": "a", "count": 2, "lift": 1.5}],
        "tokens": [{"id": 17, "text": " year", "count": 3, "lift": 2.5}]}]}]}]})";

constexpr const char* kStep = R"({"step": 2, "loss": 3.5, "tokens": 200, "seconds": 2.5,
  "tokens_per_second": 100, "parts": {"attention": 0.5, "assignment": 0.1},
  "layers": [{"layer": 2, "assign_seconds": 0.1, "exchange_seconds": 0, "greedy_share": 0.5,
              "relative_gap": 0.01}]})";

constexpr const char* kMetric = R"({"step": 2, "valid_loss": 3.25, "valid_tokens": 90,
  "valid_floor": 0.5, "domains": [{"name": "law", "tokens": 9, "loss": 1.25}],
  "experts": [{"layer": 2, "loads": [5, 4], "domain_information_bits": 0.1}],
  "second_experts": [{"layer": 2, "loads": [5, 4]}],
  "other_routing": {"routing": "priced", "loss": 3.0, "experts": [{"layer": 2, "loads": [4, 5]}]}})";

constexpr const char* kExperiment = R"({"format": "ballast-experiment", "version": 2, "name": "all",
  "title": "All", "budget_seconds": 60, "training_seconds": null, "max_epochs": 4,
  "middle_learning_rate": 0.002, "workers": 1, "rates": 1, "seeds": 1, "at_once": 1,
  "tokens_per_step": 100, "data": "builtin", "program_version": "1",
  "hardware": {"cpu": "a", "cores": 2, "memory_bytes": 1e9, "os": "b"},
  "panels": [{"title": "2 experts", "systems": ["base"], "plan": {"workers": 2, "device": "v100",
    "network": "x", "tokens_per_second": {"base": 5}}}],
  "systems": [{"id": "base", "title": "BASE x1", "words": "BASE x1, 2 experts", "kind": "base",
    "experts": 2, "knobs": {"model.width": "64"}, "parameters": 5, "active": 4,
    "flops_per_token": 3, "step_seconds": null, "step_parts": {}, "steps": 2,
    "learning_rate": 0.002, "status": "trained",
    "sweep": [{"learning_rate": 0.001, "steps": 5, "loss": 3.5}],
    "runs": [{"seed": 1, "run": "run"}]}]})";

// An experiment of one run, each of whose files can be given another text.
struct Files {
  std::string run = test::kRunFile, validation = kValidation, step = kStep, metric = kMetric,
              experiment = kExperiment;
};

void write(const TemporaryFolder& folder, const Files& files) {
  test::write_run(folder / "run", "[experts]\nlayers = 1\ncount = 2\n[training]\nsteps = 2\n");
  write_text_atomically(folder / "run/run.json", files.run);
  write_text_atomically(folder / "run/validation.json", files.validation);
  std::string lines = test::step_line(1, 4);
  for (const std::string& text : {files.step, files.metric})
    lines += json::parse(text).dump() + "\n";
  write_text_atomically(folder / "run/metrics.jsonl", lines);
  write_text_atomically(folder / "experiment.json", files.experiment);
}

// A page, or a UserError: nothing else may come of any file.
void expect_page_or_refusal(const TemporaryFolder& folder, const std::string& what) {
  for (const fs::path& path : {folder / "run", folder.path()}) {
    try {
      const std::string page = make_page(read_comparison({path}, [](const config::Config&) {
                                 return ModelCounts();
                               })).finish();
      EXPECT_NE(page.find("</html>"), std::string::npos);
      EXPECT_EQ(page.find("=\"nan"), std::string::npos) << what;
    } catch (const UserError&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << ": " << error.what();
    }
  }
}

// Each value of a file in turn is another one, of each type.
void attack(std::string Files::*file) {
  const TemporaryFolder folder;
  const json whole = json::parse(Files().*file);
  const json flat = whole.flatten();
  std::set<std::string> places;
  for (const auto& [place, value] : flat.items()) {
    for (size_t end = place.size(); end != std::string::npos && end > 0;
         end = place.rfind('/', end - 1))
      places.insert(place.substr(0, end));
  }
  for (const std::string& place : places) {
    for (const char* value :
         {"null", "-3", "1e300", "0", "\"text\"", "[]", "[null]", "{}", "true"}) {
      json damaged = whole;
      damaged[json::json_pointer(place)] = json::parse(value);
      Files files;
      files.*file = damaged.dump();
      write(folder, files);
      expect_page_or_refusal(folder, place + " = " + value);
    }
  }
}

TEST(DamagedFiles, OfAValidationAreAPageOrARefusal) { attack(&Files::validation); }
TEST(DamagedFiles, OfAStepAreAPageOrARefusal) { attack(&Files::step); }
TEST(DamagedFiles, OfAMetricAreAPageOrARefusal) { attack(&Files::metric); }
TEST(DamagedFiles, OfARunAreAPageOrARefusal) { attack(&Files::run); }
TEST(DamagedFiles, OfAnExperimentAreAPageOrARefusal) { attack(&Files::experiment); }

std::string page_of(const std::vector<fs::path>& paths) {
  return make_page(read_comparison(paths, [](const config::Config&) { return ModelCounts(); }))
      .finish();
}

TEST(DamagedFiles, RunsWithoutAnyStepAreAPage) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    test::write_run(folder / name, "[training]\nsteps = 2\n");
    write_text_atomically(folder / name / "validation.json", kValidation);
  }
  const std::string page = page_of({folder / "a", folder / "b"});
  EXPECT_NE(page.find("No winner can be named: how long each of them was trained is not known."),
            std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

TEST(DamagedFiles, AReferenceWithoutAValidationIsNotComparedWith) {
  const TemporaryFolder folder;
  write(folder, {});
  test::write_run(folder / "dense", "[training]\nsteps = 2\n");
  write_text_atomically(folder / "dense/metrics.jsonl",
                        test::step_line(1, 4) + test::step_line(2, 3));
  const std::string page = page_of({folder / "dense", folder / "run"});
  EXPECT_NE(page.find("was trained to its end and validated, it alone: perplexity 4.48."),
            std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

TEST(DamagedFiles, ThatAreWholeHaveAllSections) {
  const TemporaryFolder folder;
  write(folder, {});
  const std::string page = make_page(read_comparison({folder.path()}, [](const config::Config&) {
                             return ModelCounts();
                           })).finish();
  for (const char* id : {"summary", "perplexity-time", "balance", "specialisation", "domains",
                         "domain-perplexity", "speed", "assignment", "learning-rates", "record"})
    EXPECT_NE(page.find(std::string("<section id=\"") + id), std::string::npos) << id;
}

}  // namespace
}  // namespace ballast::pages
