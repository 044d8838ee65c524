// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/served_models.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "ballast/checkpoint/step_folders.h"
#include "ballast/studio/serving/http_server.h"
#include "ballast/studio/serving/text_queue.h"
#include "ballast/system/error.h"
#include "ballast/system/utf8.h"

namespace ballast::serving {
namespace {

constexpr size_t kKeptModels = 4;  // beside one of each run
constexpr size_t kMaxJobs = 4096;

std::filesystem::path checkpoints_of(const std::filesystem::path& path) {
  return std::filesystem::exists(path / "checkpoints") ? path / "checkpoints" : path;
}

}  // namespace

std::vector<ServedRun> name_runs(const std::vector<std::string>& paths) {
  std::vector<ServedRun> runs;
  std::set<std::string> names;
  for (const std::string& path : paths) {
    std::filesystem::path place = std::filesystem::absolute(path).lexically_normal();
    if (!place.has_filename()) place = place.parent_path();  // a slash at the end
    const std::string plain = replace_invalid_utf8(place.filename().string());
    std::string name = plain;
    for (int number = 2; !names.insert(name).second; ++number)
      name = fmt::format("{}-{}", plain, number);
    runs.push_back({.name = name, .path = path});
  }
  return runs;
}

class ServedModels::Impl {
 public:
  Impl(std::vector<ServedRun> served, ModelsOptions options, comm::World& world)
      : runs(std::move(served)), options(std::move(options)), world_(world) {
    thread_ = std::thread([this] { compute(); });
  }
  ~Impl() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    something_.notify_all();
    thread_.join();
  }

  const std::vector<ServedRun> runs;
  const ModelsOptions options;

  struct Job {
    ModelOrder order;
    Work work;  // empty: texts are to be written
    MakeTexts make;
    Failure failed;
    Wanted wanted;
  };
  void add(Job job) {
    {
      const std::scoped_lock lock(mutex_);
      if (jobs_.size() >= kMaxJobs)
        throw Refused(503, "too much waits for the models: ask again later");
      jobs_.push_back(std::move(job));
    }
    something_.notify_all();
  }

  std::vector<uint64_t> steps(size_t run) const {
    std::vector<uint64_t> steps;
    for (const auto& folder : checkpoint::list_step_folders(checkpoints_of(runs.at(run).path)))
      steps.push_back(folder.step);
    return steps;
  }

  TextCounts texts() const { return {.written = written_, .waiting = waiting_}; }

 private:
  // A checkpoint of a run that is in memory.
  struct Model {
    std::unique_ptr<loading::LoadedModel> loaded;
    std::unique_ptr<TextQueue> texts;
    uint64_t last_use = 0;
  };
  using Key = std::pair<size_t, uint64_t>;  // run and step

  void compute() {
    const at::NoGradGuard no_grad;
    for (;;) {
      std::deque<Job> turn;
      {
        std::unique_lock lock(mutex_);
        something_.wait(lock, [&] { return stopping_ || !jobs_.empty() || is_writing(); });
        if (stopping_) return;
        // Texts join at once; of other work one piece, then all texts have their turn.
        while (!jobs_.empty() && (turn.empty() || !turn.back().work)) {
          turn.push_back(std::move(jobs_.front()));
          jobs_.pop_front();
        }
      }
      for (const Job& job : turn) run(job);
      for (auto& [key, model] : models_) model.texts->step();
      count_texts();
      let_go(kKeptModels + runs.size());
    }
  }

  void run(const Job& job) {
    if (job.wanted && !job.wanted()) return;
    try {
      Model& model = model_of(job.order);
      model.last_use = ++uses_;
      if (job.work) {
        job.work(*model.loaded);
      } else {
        model.texts->add(job.make(*model.loaded), job.failed);
      }
    } catch (const std::exception& error) {
      job.failed(error);
    }
  }

  bool is_writing() const {
    return std::ranges::any_of(models_,
                               [](const auto& entry) { return !entry.second.texts->is_empty(); });
  }

  void count_texts() {
    TextCounts sum;
    for (const auto& [key, model] : models_) {
      sum.written += model.texts->counts().written;
      sum.waiting += model.texts->counts().waiting;
    }
    written_ = sum.written;
    waiting_ = sum.waiting;
  }

  Model& model_of(const ModelOrder& order) {
    const ServedRun& run = runs.at(order.run);
    const std::vector<uint64_t> there = steps(order.run);
    if (order.step) {
      if (const auto model = models_.find({order.run, *order.step}); model != models_.end())
        return model->second;
      if (!std::ranges::count(there, *order.step))
        fail("{} has no checkpoint of step {}", run.name, *order.step);
      return load(order.run, checkpoints_of(run.path) / checkpoint::step_folder_name(*order.step));
    }
    // A training may have saved another one meanwhile. The newest that verifies may be an older
    // one than the newest that is there.
    const uint64_t newest = there.empty() ? 0 : there.back();
    const auto known = newest_valid_.find({order.run, newest});
    const uint64_t step = known == newest_valid_.end() ? newest : known->second;
    if (const auto model = models_.find({order.run, step}); model != models_.end())
      return model->second;
    Model& model = load(order.run, run.path);
    newest_valid_[{order.run, newest}] = model.loaded->step;
    return model;
  }

  Model& load(size_t run, const std::filesystem::path& path) {
    loading::LoadRequest request = options.how;
    request.path = path;
    std::unique_ptr<loading::LoadedModel> loaded;
    try {
      loaded = loading::load_model(request, world_);
    } catch (const UserError&) {
      throw;
    } catch (const std::exception&) {  // perhaps the memory is full of models that nobody uses
      let_go(0);
      loaded = loading::load_model(request, world_);
    }
    const Key key{run, loaded->step};
    if (const auto model = models_.find(key); model != models_.end()) return model->second;
    const experts::RoutingMode routing = options.routing(*loaded);
    auto texts = std::make_unique<TextQueue>(*loaded, routing, options.rows);
    return models_[key] = Model{.loaded = std::move(loaded), .texts = std::move(texts)};
  }

  // Of models that write nothing only as many stay that there are `kept` of all.
  void let_go(size_t kept) {
    while (models_.size() > kept) {
      auto oldest = models_.end();
      for (auto model = models_.begin(); model != models_.end(); ++model) {
        if (!model->second.texts->is_empty()) continue;
        if (oldest == models_.end() || model->second.last_use < oldest->second.last_use)
          oldest = model;
      }
      if (oldest == models_.end()) return;
      models_.erase(oldest);
    }
  }

  comm::World& world_;
  std::mutex mutex_;
  std::condition_variable something_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::atomic<int64_t> written_ = 0, waiting_ = 0;
  // Of the models' thread alone.
  std::map<Key, Model> models_;
  std::map<Key, uint64_t> newest_valid_;  // by run and the newest step that is there
  uint64_t uses_ = 0;
  std::thread thread_;
};

ServedModels::ServedModels(std::vector<ServedRun> runs, ModelsOptions options, comm::World& world)
    : impl_(std::make_unique<Impl>(std::move(runs), std::move(options), world)) {}
ServedModels::~ServedModels() = default;

const std::vector<ServedRun>& ServedModels::runs() const { return impl_->runs; }
std::vector<uint64_t> ServedModels::steps(size_t run) const { return impl_->steps(run); }
const loading::LoadRequest& ServedModels::how() const { return impl_->options.how; }
TextCounts ServedModels::texts() const { return impl_->texts(); }

void ServedModels::post(const ModelOrder& order, Work work, Failure failed, Wanted wanted) {
  impl_->add({.order = order,
              .work = std::move(work),
              .make = {},
              .failed = std::move(failed),
              .wanted = std::move(wanted)});
}

void ServedModels::write(const ModelOrder& order, MakeTexts make, Failure failed, Wanted wanted) {
  impl_->add({.order = order,
              .work = {},
              .make = std::move(make),
              .failed = std::move(failed),
              .wanted = std::move(wanted)});
}

void ServedModels::load(const ModelOrder& order) {
  std::promise<void> done;
  post(
      order, [&done](const loading::LoadedModel&) { done.set_value(); },
      [&done](const std::exception&) { done.set_exception(std::current_exception()); });
  done.get_future().get();
}

}  // namespace ballast::serving
