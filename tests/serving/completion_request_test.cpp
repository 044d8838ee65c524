// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/completion_request.h"

#include <gtest/gtest.h>

#include "ballast/studio/serving/http_server.h"

namespace ballast::serving {
namespace {

using Tokens = std::vector<tokenizer::TokenId>;

TEST(CompletionRequest, ReadsAll) {
  const auto request = read_completion_request(
      R"({"model": "m", "prompt": "p", "n": 2, "max_tokens": 0, "temperature": 0, "top_p": 0.5,
          "top_k": 3, "seed": -1, "logprobs": 5, "stop": ["a", "b"], "echo": true, "stream": true,
          "stream_options": {"include_usage": true}, "ignore_eos": true, "user": "me",
          "best_of": 2, "presence_penalty": 0.0, "frequency_penalty": 0, "suffix": null,
          "logit_bias": {}})");
  EXPECT_EQ(request.model, "m");
  ASSERT_EQ(request.prompts.size(), 1);
  EXPECT_EQ(std::get<std::string>(request.prompts[0]), "p");
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_p, 0.5);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.seed, ~uint64_t{0});
  EXPECT_EQ(request.logprobs, 5);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.echo && request.stream && request.include_usage && request.ignore_eos);
}

TEST(CompletionRequest, DefaultsAreOpenAIs) {
  const auto request = read_completion_request("{}");
  EXPECT_EQ(std::get<std::string>(request.prompts.at(0)), "");
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.logprobs, -1);
  EXPECT_FALSE(request.seed);
}

TEST(CompletionRequest, PromptsOfAllKinds) {
  const auto tokens = read_completion_request(R"({"prompt": [1, 2]})");
  EXPECT_EQ(std::get<Tokens>(tokens.prompts.at(0)), (Tokens{1, 2}));
  const auto texts = read_completion_request(R"({"prompt": ["a", ""]})");
  EXPECT_EQ(texts.prompts.size(), 2);
  const auto lists = read_completion_request(R"({"prompt": [[1], []], "stop": "s"})");
  EXPECT_EQ(std::get<Tokens>(lists.prompts.at(1)), Tokens());
  EXPECT_EQ(lists.stop.size(), 1);
}

// The key that a refusal names; "": none.
std::string refused_key(const std::string& body) {
  try {
    read_completion_request(body);
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.status(), 400) << body;
    return refused.param();
  }
  ADD_FAILURE() << "not refused: " << body;
  return {};
}

TEST(CompletionRequest, WhatIsWrongIsRefusedByName) {
  for (const char* body : {"", "[]", "1", "{", "{}{}", "{\"n\": 1, \"n\": 2}", "null"})
    EXPECT_EQ(refused_key(body), "") << body;
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"prompt", "[]"},
      {"prompt", "[1, \"a\"]"},
      {"prompt", "{}"},
      {"prompt", "[-1]"},
      {"prompt", "[4294967296]"},
      {"prompt", "[[1.5]]"},
      {"n", "0"},
      {"n", "1025"},
      {"n", "1.0"},
      {"max_tokens", "-1"},
      {"max_tokens", "18446744073709551615"},
      {"temperature", "-0.1"},
      {"temperature", "\"0\""},
      {"top_p", "1.5"},
      {"top_k", "-1"},
      {"logprobs", "true"},
      {"logprobs", "-1"},
      {"logprobs", "101"},
      {"seed", "1e3"},
      {"seed", "18446744073709551615"},
      {"stop", "\"\""},
      {"stop", "[1]"},
      {"stop", "[\"1\",\"2\",\"3\",\"4\",\"5\"]"},
      {"echo", "1"},
      {"stream", "\"yes\""},
      {"stream_options", "{}"},
      {"best_of", "2"},
      {"presence_penalty", "1"},
      {"frequency_penalty", "0.1"},
      {"suffix", "\"x\""},
      {"logit_bias", "{\"1\": 1}"},
      {"model", "7"},
      {"max_token", "5"},
      {"messages", "[]"}};
  for (const auto& [key, value] : bad)
    EXPECT_EQ(refused_key("{\"" + key + "\": " + value + "}"), key) << value;
  EXPECT_EQ(refused_key(R"({"stream": true, "stream_options": {"usage": true}})"), "usage");
}

TEST(CompletionRequest, TextsOfARequestAreBounded) {
  std::string prompts = "\"a\"";
  for (int i = 0; i < 600; ++i) prompts += ", \"a\"";
  EXPECT_EQ(refused_key("{\"prompt\": [" + prompts + "], \"n\": 2}"), "n");
  EXPECT_EQ(read_completion_request("{\"prompt\": [" + prompts + "]}").prompts.size(), 601);
}

}  // namespace
}  // namespace ballast::serving
