// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/generate.h"

#include <algorithm>

#include "ballast/comm/any_worker.h"
#include "ballast/inference/writer.h"

namespace ballast::inference {

std::vector<std::vector<tokenizer::TokenId>> generate(
    const model::LanguageModel& model, const model::ComputePlace& place,
    tokenizer::TokenId end_of_text, const std::vector<std::vector<tokenizer::TokenId>>& prompts,
    const GenerationOptions& options, const TokenCallback& on_token) {
  std::vector<std::vector<tokenizer::TokenId>> written(prompts.size());
  Writer writer(model, place, end_of_text, options.routing, std::ssize(prompts));
  bool stop = false;
  for (size_t p = 0; p < prompts.size(); ++p) {
    Writing writing{.text = options.start,
                    .max_tokens = options.max_tokens,
                    .sampling = options.sampling,
                    .seed = options.seed,
                    .stream = p,
                    .stop_at_end_of_text = options.stop_at_end_of_text};
    if (writing.text.empty()) writing.text = {end_of_text};  // as before every document in training
    writing.text.insert(writing.text.end(), prompts[p].begin(), prompts[p].end());
    writing.on_token = [&, p](const WrittenToken& token) {
      if (stop) return false;
      written[p].push_back(token.chosen.token);
      stop = on_token && !on_token(p, token.chosen.token);
      return !stop;
    };
    writer.add(std::move(writing));
  }
  while (writer.step()) {
    if (on_token && comm::on_any_worker(model.workers(), stop, {"stop writing"})) break;
  }
  return written;
}

}  // namespace ballast::inference
