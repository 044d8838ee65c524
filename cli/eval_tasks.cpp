// SPDX-License-Identifier: Apache-2.0
#include "cli/eval_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ballast/loading/framing.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"
#include "ballast/text/file_list.h"
#include "ballast/text/json_lines.h"
#include "ballast/text/text_files.h"
#include "cli/model_options.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string task_name(const std::string& file) {
  std::filesystem::path name = std::filesystem::path(file).filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name.replace_extension();
  return name.stem().string();
}

std::vector<std::string> read_documents(const std::string& file) {
  const auto reader = text::read_text_files(
      text::list_text_files({file}, {.split_names = text::SplitNames::kIgnored}));
  std::vector<std::string> documents;
  bool begins = true;
  for (text::TextPiece piece; reader->next(piece); begins = piece.ends_document) {
    if (begins) documents.emplace_back();
    documents.back() += piece.text;
  }
  return documents;
}

// The items of a .jsonl, as `make` takes them from its objects.
template <typename Item, typename Make>
std::vector<Item> read_items(const std::string& file, Make make) {
  text::JsonObjects objects(text::open_byte_source(file), file);
  std::vector<Item> items;
  for (nlohmann::json object; objects.next(object);) items.push_back(make(objects, object));
  if (items.empty()) fail("{} is empty: it has no line with a task", file);
  return items;
}

inference::ChoiceItem choice_item(const text::JsonObjects& objects, nlohmann::json& object) {
  inference::ChoiceItem item{.query = objects.take_string(object, "query"), .choices = {}};
  const nlohmann::json choices = object.value("choices", nlohmann::json());
  const bool are_texts =
      choices.is_array() && choices.size() > 1 &&
      std::ranges::all_of(choices, [](const nlohmann::json& choice) {
        return choice.is_string() && !choice.get_ref<const std::string&>().empty();
      });
  if (!are_texts) objects.refuse("its 'choices' must be a list of two or more texts");
  item.choices = choices.get<std::vector<std::string>>();
  const nlohmann::json gold = object.value("gold", nlohmann::json());
  if (!gold.is_number_unsigned() || gold.get<uint64_t>() >= item.choices.size())
    objects.refuse("its 'gold' must be the number of a choice, counted from 0");
  item.gold = gold.get<size_t>();
  return item;
}

inference::LastWordItem last_word_item(const text::JsonObjects& objects, nlohmann::json& object) {
  return {objects.take_string(object, "text")};
}

std::string shown(const inference::Metric& metric) {
  return metric.error ? fmt::format("{:.4f} (± {:.4f})", metric.value, *metric.error)
                      : fmt::format("{:.4f}", metric.value);
}

}  // namespace

std::vector<NamedTask> read_tasks(const TaskFiles& files, const loading::LoadedModel& loaded) {
  using inference::ChoiceItem, inference::LastWordItem;
  const auto reader = [&](const std::string& file) -> inference::Reader {
    return {file, require_tokenizer(loaded), loaded.config.model.context,
            loading::framing_of(loaded.data)};
  };
  std::vector<NamedTask> tasks;
  for (const std::string& file : files.words)
    tasks.push_back({task_name(file), word_perplexity(reader(file), read_documents(file))});
  for (const std::string& file : files.wikitext)
    tasks.push_back({task_name(file), wikitext_perplexity(reader(file), read_documents(file))});
  for (const std::string& file : files.last_words) {
    const auto items = read_items<LastWordItem>(file, last_word_item);
    tasks.push_back({task_name(file), last_words(reader(file), items)});
  }
  for (const std::string& file : files.choices) {
    const auto items = read_items<ChoiceItem>(file, choice_item);
    tasks.push_back({task_name(file), multiple_choice(reader(file), items)});
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (tasks[i].name == tasks[j].name)
        fail("two tasks are called '{}' by their files: rename one", tasks[i].name);
    }
  }
  return tasks;
}

std::string tasks_to_text(const std::vector<NamedResult>& results) {
  std::string text = fmt::format("{:24}{:>10}  {:18}value\n", "task", "items", "metric");
  for (const NamedResult& one : results) {
    bool is_first = true;
    for (const inference::Metric& metric : one.result.metrics) {
      text += fmt::format("{:24}{:>10}  {:18}{}\n", is_first ? one.task : "",
                          is_first ? fmt::format("{}", one.result.items) : "", metric.name,
                          shown(metric));
      is_first = false;
    }
  }
  return text;
}

std::string tasks_to_json(const std::vector<NamedResult>& results,
                          const loading::LoadedModel& loaded) {
  Json object{{"model", loaded.path.string()}, {"step", loaded.step}, {"results", Json::object()}};
  for (const NamedResult& one : results) {
    Json& row = object["results"][one.task] = Json{{"alias", one.task}};
    for (const inference::Metric& metric : one.result.metrics) {
      row[metric.name + ",none"] = metric.value;
      row[metric.name + "_stderr,none"] = metric.error ? Json(*metric.error) : Json("N/A");
    }
    object["n-samples"][one.task] = {{"original", one.result.items},
                                     {"effective", one.result.items}};
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ballast::cli
