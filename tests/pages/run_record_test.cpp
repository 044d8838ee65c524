// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/pages/run_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::pages {
namespace {

using test::step_line;
using test::TemporaryFolder;
using test::validation_line;
using test::write_run;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kDense = "[training]\nsteps = 3\n";

TEST(RunRecord, AFolderThatIsNoRunIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(test::error_of([&] { read_run(folder.path()); }),
              HasSubstr("is not the folder of a run"));
}

TEST(RunRecord, StepsAndValidationsAreReadInOrder) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  write_text_atomically(folder / "metrics.jsonl",
                        step_line(1, 5) + step_line(2, 4) + test::validation_line(2, 4.5) +
                            step_line(3, 3) + test::validation_line(3, 3.5));
  const RunRecord run = read_run(folder.path());
  ASSERT_EQ(run.steps.size(), 3);
  EXPECT_EQ(run.steps_done(), 3);
  EXPECT_EQ(run.tokens(), 300);
  ASSERT_EQ(run.validations.size(), 2);
  EXPECT_EQ(run.validations[0].tokens, 200);
  EXPECT_EQ(run.validations[0].seconds, 2);
  EXPECT_EQ(run.validations[1].loss, 3.5);
  ASSERT_TRUE(run.validation.has_value());
  EXPECT_EQ(run.validation->main()->loss, 3.5);
  EXPECT_EQ(run.starts.front().machine, "a processor, 2 cores");
}

TEST(RunRecord, ATornLastLineAndADamagedOneAreTold) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  write_text_atomically(folder / "metrics.jsonl", step_line(1, 5) + "{\"step\": 2, \"lo\n" +
                                                      step_line(3, 4) +
                                                      "{\"step\": 4, \"loss\": 3.0, \"tok");
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.steps.size(), 2);
  EXPECT_THAT(run.notes, Contains(HasSubstr("1 damaged line passed over")));
  EXPECT_THAT(run.notes, Contains(HasSubstr("its last line is torn")));
  write_text_atomically(folder / "metrics.jsonl", step_line(1, 5));
  EXPECT_THAT(read_run(folder.path()).notes, Not(Contains(HasSubstr("torn"))));
}

TEST(RunRecord, ADamagedRunFileIsTold) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  EXPECT_THAT(read_run(folder.path()).notes, Not(Contains(HasSubstr("run.json"))));
  for (const char* damaged : {"", "{\"starts\": [", "[]", "{\"starts\": 3}"}) {
    write_text_atomically(folder / "run.json", damaged);
    const RunRecord run = read_run(folder.path());
    EXPECT_THAT(run.starts, IsEmpty());
    EXPECT_THAT(run.notes, Contains(HasSubstr("run.json is damaged"))) << damaged;
  }
}

TEST(RunRecord, NumbersThatAreMissingOrNullAreNotKnown) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  write_text_atomically(folder / "metrics.jsonl",
                        "{\"step\": 1, \"loss\": null, \"seconds\": \"no number\"}\n");
  const RunRecord run = read_run(folder.path());
  ASSERT_EQ(run.steps.size(), 1);
  EXPECT_TRUE(std::isnan(run.steps[0].loss));
  EXPECT_TRUE(std::isnan(run.seconds()));
  EXPECT_TRUE(std::isnan(run.steps[0].tokens_per_second));
}

TEST(RunRecord, KeysOfLaterProgramsAreIgnored) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  write_text_atomically(
      folder / "metrics.jsonl",
      R"({"step": 1, "loss": 2.5, "news": {"a": [1]}, "layers": [{"layer": 2, "colour": "red"}]})"
      "\n");
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.steps[0].loss, 2.5);
  EXPECT_TRUE(std::isnan(run.steps[0].layers[0].relative_gap));
}

TEST(RunRecord, MissingFilesAreTold) {
  const TemporaryFolder folder;
  write_text_atomically(folder / "run.json", test::kRunFile);
  const RunRecord run = read_run(folder.path());
  EXPECT_THAT(run.notes, Contains(HasSubstr("config.toml is missing")));
  EXPECT_THAT(run.notes, Contains(HasSubstr("metrics.jsonl is missing")));
  EXPECT_THAT(run.notes, Contains(HasSubstr("there was no validation yet")));
}

TEST(RunRecord, AConfigOfALaterProgramIsShownButNotUnderstood) {
  const TemporaryFolder folder;
  write_run(folder.path(), "[training]\nsteps = 3\nmagic = true\n");
  const RunRecord run = read_run(folder.path());
  EXPECT_FALSE(run.config.has_value());
  EXPECT_THAT(run.config_text, HasSubstr("magic"));
  EXPECT_THAT(run.notes, Contains(HasSubstr("config.toml is not understood")));
}

TEST(RunRecord, AnUnfinishedRunIsTold) {
  const TemporaryFolder folder;
  write_run(folder.path(), "[training]\nsteps = 600\n");
  write_text_atomically(folder / "metrics.jsonl", step_line(120, 3));
  EXPECT_THAT(read_run(folder.path()).notes, Contains(HasSubstr("interrupted at step 120 of 600")));
}

TEST(RunRecord, AFinishedRunHasNothingToTell) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  write_text_atomically(folder / "metrics.jsonl", step_line(3, 3) + test::validation_line(3, 3));
  write_text_atomically(folder / "validation.json",
                        R"({"format": "ballast-validation", "version": 1, "step": 3, "routings": [
                            {"routing": null, "loss": 2.0, "layers": []}]})");
  const RunRecord run = read_run(folder.path());
  EXPECT_THAT(run.notes, IsEmpty());
  EXPECT_TRUE(run.has_validation_file);
  EXPECT_EQ(run.validation->main()->loss, 2.0);
}

TEST(RunRecord, ADamagedValidationFileLeavesWhatMetricsTell) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  write_text_atomically(folder / "metrics.jsonl", step_line(3, 3) + test::validation_line(3, 2.5));
  for (const char* text : {"", "{\"format\": \"ballast-val", "[]", R"({"format": "another"})",
                           R"({"format": "ballast-validation", "version": 9})"}) {
    write_text_atomically(folder / "validation.json", text);
    const RunRecord run = read_run(folder.path());
    EXPECT_THAT(run.notes, Contains(HasSubstr("validation.json"))) << text;
    EXPECT_EQ(run.validation->main()->loss, 2.5);
  }
}

TEST(RunRecord, AValidationFileOfAnotherStepIsLeftAside) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  write_text_atomically(folder / "metrics.jsonl", step_line(2, 3) + test::validation_line(2, 4.5) +
                                                      step_line(3, 3) +
                                                      test::validation_line(3, 2.5));
  write_text_atomically(folder / "validation.json",
                        R"({"format": "ballast-validation", "version": 1, "step": 2, "routings": [
                            {"routing": null, "loss": 4.5, "layers": []}]})");
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.validation->main()->loss, 2.5);
  EXPECT_FALSE(run.has_validation_file);
  EXPECT_THAT(run.notes, Contains("validation.json is of step 2, the last validation of step 3: it "
                                  "is left aside"));
}

TEST(RunRecord, ARunThatHadATimeIsFinishedAtItsEnd) {
  const TemporaryFolder folder;
  write_run(folder.path(), "[training]\nsteps = 600\nmax_time = \"2m\"\n");
  write_text_atomically(folder / "metrics.jsonl", step_line(119, 3));
  EXPECT_FALSE(read_run(folder.path()).is_finished());
  write_text_atomically(folder / "metrics.jsonl", step_line(120, 3));
  EXPECT_TRUE(read_run(folder.path()).is_finished());
}

TEST(RunRecord, ACommandIsAsAShellTakesItAgain) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  write_text_atomically(folder / "run.json", R"({"format": "ballast-run", "version": 1, "starts": [
    {"workers": 2, "command_line": ["ballast", "train", "--workers=2", "--data", "it's a b", ""]}]})");
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.starts.front().command, R"(ballast train --workers=2 --data 'it'\''s a b' '')");
  EXPECT_EQ(run.starts.front().workers, 2);
}

TEST(Machine, NamesItsGpusAndHowMany) {
  const auto words = [](const char* gpus) {
    return machine_in_words({{"gpus", nlohmann::json::parse(gpus)}, {"cpu", "c"}, {"cores", 2}});
  };
  EXPECT_EQ(words(R"(["NVIDIA H200"])"), "NVIDIA H200, c, 2 cores");
  EXPECT_EQ(words(R"(["NVIDIA H200", "NVIDIA H200"])"), "2 x NVIDIA H200, c, 2 cores");
  EXPECT_EQ(words("[]"), "c, 2 cores");
  EXPECT_EQ(words("[3, null]"), "c, 2 cores");
}

TEST(RunRecord, OfSeveralSamplesTheLastIsShownWithoutItsIndent) {
  const TemporaryFolder folder;
  write_run(folder.path(), kDense);
  write_text_atomically(folder / "samples.txt",
                        "== step 1 ==\n  first\n\n== step 2 ==\n  a line\n    indented\n\n");
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.sample_step, 2);
  EXPECT_EQ(run.sample, "a line\n  indented");
}

}  // namespace
}  // namespace ballast::pages
