// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "ballast/loading/framing.h"
#include "ballast/studio/serving/completion_request.h"
#include "ballast/studio/serving/completion_text.h"
#include "ballast/system/error.h"
#include "ballast/system/number_from.h"

namespace ballast::serving {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

constexpr int64_t kMostNumbers = int64_t{1} << 22;  // of an answer in one piece

uint64_t random_number() {
  std::random_device device;
  return (uint64_t{device()} << 32U) | device();
}

// An answer while it is written. Everything but the constructor is called on the models' thread.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(CompletionRequest request, std::string model, std::shared_ptr<Responder> responder)
      : request_(std::move(request)),
        model_(std::move(model)),
        responder_(std::move(responder)),
        id_(fmt::format("cmpl-{:016x}", random_number())),
        created_(std::time(nullptr)),
        seed_(request_.seed.value_or(random_number())) {}

  std::vector<inference::Writing> texts(const loading::LoadedModel& loaded) {
    if (loaded.tokenizer == nullptr) {
      throw Refused(400, fmt::format("{} was trained on token files that name no tokenizer: start "
                                     "the server with --tokenizer",
                                     model_));
    }
    const auto start =
        tokenizer::start_of_text(*loaded.tokenizer, loading::framing_of(loaded.data));
    step_ = loaded.step;
    std::vector<inference::Writing> writings;
    int64_t told = 0;
    for (const CompletionRequest::Prompt& prompt : request_.prompts) {
      const ReadPrompt read =
          read_prompt(prompt, *loaded.tokenizer, start, loaded.config.model.context);
      prompt_tokens_ += std::ssize(read.tokens);
      told += numbers_told(std::ssize(read.tokens));
      if (!request_.stream && told > kMostNumbers) {
        throw Refused(400,
                      "the answer would be too large: ask for fewer tokens, texts or logprobs, or "
                      "with \"stream\"",
                      "max_tokens");
      }
      for (int64_t i = 0; i < request_.n; ++i) writings.push_back(text(read, *loaded.tokenizer));
    }
    return writings;
  }

  void fail(const std::exception& error) {
    const HttpResponse refused = refusal_of(error);
    if (stream_ == nullptr) return responder_->answer(refused);
    stream_->write(fmt::format("data: {}\n\n", refused.body));
    stream_->end();
  }

 private:
  // What an answer in one piece tells of a prompt's texts at most.
  int64_t numbers_told(int64_t prompt_tokens) const {
    return request_.n * (request_.max_tokens + (request_.echo ? prompt_tokens : 0)) *
           (1 + std::max<int64_t>(0, request_.logprobs));
  }

  inference::Writing text(const ReadPrompt& prompt, const tokenizer::Tokenizer& tokenizer) {
    const size_t number = choices_.size();
    choices_.emplace_back(request_, prompt, tokenizer);
    inference::Writing writing{.text = prompt.written,
                               .max_tokens = request_.max_tokens,
                               .sampling = request_.sampling,
                               .seed = seed_,
                               .stream = number,
                               .stop_at_end_of_text = !request_.ignore_eos,
                               .likeliest = request_.logprobs};
    writing.is_wanted = [self = shared_from_this()] { return !self->responder_->gone(); };
    if (request_.echo && request_.logprobs >= 0) {
      writing.on_read = [self = shared_from_this(), number](const auto& read) {
        self->choices_[number].add_prompt(read);
      };
    }
    writing.on_token = [self = shared_from_this(), number](const inference::WrittenToken& token) {
      const bool goes_on = self->choices_[number].add(token);
      if (self->request_.stream) self->send(number);
      return goes_on && !self->responder_->gone();
    };
    writing.on_end = [self = shared_from_this(), number](inference::WritingEnd end) {
      self->end(number, end);
    };
    return writing;
  }

  Json head() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_},
            {"system_fingerprint", fmt::format("step-{}", step_)}};
  }

  Json usage() const {
    int64_t written = 0;
    for (const CompletionText& choice : choices_) written += choice.tokens();
    return {{"prompt_tokens", prompt_tokens_},
            {"completion_tokens", written},
            {"total_tokens", prompt_tokens_ + written}};
  }

  // A piece of a choice, if there is something new.
  void send(size_t number) {
    if (!choices_[number].has_piece()) return;
    send_chunk(Json::array({choices_[number].take(static_cast<int64_t>(number))}));
  }

  void send_chunk(const Json& choices) {
    // Not before: what is refused has another status.
    if (stream_ == nullptr) stream_ = responder_->stream("text/event-stream; charset=utf-8");
    Json chunk = head();
    chunk["choices"] = choices;
    if (request_.include_usage) chunk["usage"] = choices.empty() ? usage() : Json();
    stream_->write(fmt::format("data: {}\n\n", text_of(chunk)));
  }

  void end(size_t number, inference::WritingEnd end) {
    choices_[number].end(end);
    ++ended_;
    const auto index = static_cast<int64_t>(number);
    if (request_.stream) send_chunk(Json::array({choices_[number].take(index)}));
    if (ended_ < choices_.size()) return;
    if (request_.stream) {
      if (request_.include_usage) send_chunk(Json::array());
      stream_->write("data: [DONE]\n\n");
      return stream_->end();
    }
    Json answer = head();
    answer["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i)
      answer["choices"].push_back(choices_[i].take(static_cast<int64_t>(i)));
    answer["usage"] = usage();
    responder_->answer({.body = text_of(answer)});
  }

  const CompletionRequest request_;
  const std::string model_;
  const std::shared_ptr<Responder> responder_;
  const std::string id_;
  const std::time_t created_;
  const uint64_t seed_;
  uint64_t step_ = 0;
  std::shared_ptr<ResponseStream> stream_;
  std::deque<CompletionText> choices_;
  size_t ended_ = 0;
  int64_t prompt_tokens_ = 0;
};

// "mine", or "mine@500" for the checkpoint of step 500.
ModelOrder find_model(const ServedModels& models, const std::string& name) {
  if (name.empty() && models.runs().size() == 1) return {.run = 0};
  std::string names;
  for (size_t i = 0; i < models.runs().size(); ++i) {
    const std::string& run = models.runs()[i].name;
    names += (i == 0 ? "" : ", ") + run;
    if (name == run) return {.run = i};
    if (!name.starts_with(run + "@")) continue;
    const auto step = number_from<uint64_t>(std::string_view(name).substr(run.size() + 1));
    if (step) return {.run = i, .step = *step};
  }
  if (name.empty()) throw Refused(400, "model is not said; there are: " + names, "model");
  throw Refused(404, fmt::format("there is no model \"{}\"; there are: {}", name, names), "model");
}

Json describe(const ServedRun& run) {
  return {{"id", run.name}, {"object", "model"}, {"created", 0}, {"owned_by", "ballast"}};
}

}  // namespace

void add_completions(HttpServer& server, ServedModels& models) {
  server.post("/v1/completions", [&models](const HttpRequest& http,
                                           const std::shared_ptr<Responder>& responder) {
    CompletionRequest request = read_completion_request(http.body);
    const ModelOrder order = find_model(models, request.model);
    const std::string name = request.model.empty() ? models.runs()[order.run].name : request.model;
    const auto completion = std::make_shared<Completion>(std::move(request), name, responder);
    models.write(
        order,
        [completion](const loading::LoadedModel& loaded) { return completion->texts(loaded); },
        [completion](const std::exception& error) { completion->fail(error); },
        [responder] { return !responder->gone(); });
  });
  Json all = Json::array();
  for (const ServedRun& run : models.runs()) {
    all.push_back(describe(run));
    server.get("/v1/models/" + run.name,
               [text = text_of(describe(run))](const HttpRequest&, const auto& responder) {
                 responder->answer({.body = text});
               });
  }
  server.get("/v1/models",
             [text = text_of({{"object", "list"}, {"data", all}})](
                 const HttpRequest&, const auto& responder) { responder->answer({.body = text}); });
  server.post("/v1/chat/completions", [](const HttpRequest&, const auto& responder) {
    responder->answer(refusal(404,
                              "these models continue texts, and know no chat: ask /v1/completions "
                              "with a prompt"));
  });
}

}  // namespace ballast::serving
