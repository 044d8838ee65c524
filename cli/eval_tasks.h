// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/inference/text_tasks.h"
#include "ballast/loading/loaded_model.h"

namespace ballast::cli {

// The files of standard tasks, by kind.
struct TaskFiles {
  std::vector<std::string> words, wikitext, last_words, choices;
  bool empty() const {
    return words.empty() && wikitext.empty() && last_words.empty() && choices.empty();
  }
};

struct NamedTask {
  std::string name;  // the file's, without its extensions
  inference::TextTask task;
};
// Throws UserError naming file and line.
std::vector<NamedTask> read_tasks(const TaskFiles& files, const loading::LoadedModel& loaded);

struct NamedResult {
  std::string task;
  inference::TaskResult result;
};
std::string tasks_to_text(const std::vector<NamedResult>& results);
// In the shape of lm-eval's results.
std::string tasks_to_json(const std::vector<NamedResult>& results,
                          const loading::LoadedModel& loaded);

}  // namespace ballast::cli
