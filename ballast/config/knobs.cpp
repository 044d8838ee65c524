// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/knobs.h"

namespace ballast {
namespace {

constexpr double kMany = 1e12;

void add_model(std::vector<Knob>& list, ModelConfig& m) {
  list.push_back({"model", "vocabulary", &m.vocabulary,
                  "tokens the model knows; 0: as many as the tokenizer has", 0, 1 << 24});
  list.push_back({"model", "width", &m.width, "width D of the token representations", 1, 1 << 20});
  list.push_back({"model", "layers", &m.layers, "transformer blocks L", 1, 10000});
  list.push_back({"model", "heads", &m.heads, "attention heads; must divide the width", 1, 4096});
  list.push_back(
      {"model", "hidden", &m.hidden, "feed-forward width F; 0: 4 times the width", 0, 1 << 22});
  list.push_back({"model", "context", &m.context, "tokens a sequence holds, S", 1, 1 << 20});
}

void add_data(std::vector<Knob>& list, DataConfig& d) {
  list.push_back({"data", "train", &d.train,
                  "what to train on: builtin, folders made by `ballast prepare`, or token files; "
                  "PATH or PATH:WEIGHT, several mixed by weight"});
  list.push_back({"data", "valid", &d.valid,
                  "what to validate on; empty: the valid split of the training data"});
  list.push_back({"data", "builtin_bytes", &d.builtin_bytes,
                  "size of the built-in corpus, in bytes", 10'000, kMany});
  list.push_back({"data", "builtin_vocabulary", &d.builtin_vocabulary,
                  "vocabulary for the built-in corpus; 257: bytes, more: a BPE trained on it", 257,
                  65'536});
}

void add_optimizer(std::vector<Knob>& list, OptimizerConfig& o) {
  list.push_back({"optimizer", "learning_rate", &o.learning_rate,
                  "highest learning rate, reached after the warm-up", 0, 10});
  list.push_back({"optimizer", "final_learning_rate", &o.final_learning_rate,
                  "learning rate at the last step, as a fraction of the highest", 0, 1});
  list.push_back({"optimizer", "warmup_steps", &o.warmup_steps,
                  "steps of linear warm-up before the linear decay", 0, kMany});
  list.push_back(
      {"optimizer", "beta1", &o.beta1, "Adam's decay of the first moment", 0, 0.9999999});
  list.push_back(
      {"optimizer", "beta2", &o.beta2, "Adam's decay of the second moment", 0, 0.9999999});
  list.push_back({"optimizer", "epsilon", &o.epsilon, "Adam's epsilon", 1e-20, 1});
  list.push_back({"optimizer", "weight_decay", &o.weight_decay,
                  "decoupled weight decay of matrices (AdamW); 0: plain Adam", 0, 10});
  list.push_back({"optimizer", "clip_norm", &o.clip_norm,
                  "largest gradient norm; longer gradients are scaled down to it; 0: no clipping",
                  0, kMany});
}

void add_training(std::vector<Knob>& list, TrainingConfig& t) {
  list.push_back({"training", "steps", &t.steps, "optimizer steps in all", 1, kMany});
  list.push_back({"training", "batch", &t.batch,
                  "sequences a step, over all workers and micro-steps", 1, 1 << 24});
  list.push_back({"training", "micro_steps", &t.micro_steps,
                  "parts a step's batch is computed in, one after another", 1, 1 << 16});
  list.push_back(
      {"training", "seed", &t.seed, "decides initial weights, data order, samples", 0, kMany});
  list.push_back({"training",
                  "device",
                  &t.device,
                  "where to compute; auto: a GPU if one is found",
                  0,
                  0,
                  {"auto", "cpu", "cuda"}});
  list.push_back({"training",
                  "precision",
                  &t.precision,
                  "auto: fp32 on cpu, bf16 with fp32 master weights on cuda",
                  0,
                  0,
                  {"auto", "fp32", "bf16", "fp64"}});
  list.push_back({"training", "threads", &t.threads, "CPU threads; 0: all cores", 0, 4096});
  list.push_back({"training", "deterministic", &t.deterministic,
                  "on a GPU, use kernels that give the same bits on every run"});
  list.push_back({"training",
                  "max_time",
                  &t.max_time,
                  "stop cleanly after this time (90, 90s, 10m, 2h); 0: no limit",
                  0,
                  kMany,
                  {},
                  true});
  list.push_back({"training", "log_every", &t.log_every, "steps between step lines", 1, kMany});
  list.push_back({"training", "validate_every", &t.validate_every,
                  "steps between validations; 0: only at the end", 0, kMany});
  list.push_back({"training", "validate_batches", &t.validate_batches,
                  "batches a validation takes; 0: the whole validation set", 0, kMany});
  list.push_back({"training", "sample_every", &t.sample_every,
                  "steps between text samples; 0: only at the end", 0, kMany});
  list.push_back({"training", "sample_tokens", &t.sample_tokens,
                  "tokens a sample has; 0: no samples", 0, 100'000});
  list.push_back({"training", "sample_prompt", &t.sample_prompt,
                  "what a sample starts with; empty: the start of a document"});
  list.push_back(
      {"training", "spike_factor", &t.spike_factor,
       "skip a step whose gradient norm exceeds this many times the recent median; 0: off", 0,
       kMany});
  list.push_back({"training", "max_skipped", &t.max_skipped,
                  "skipped steps in a row before the run stops", 1, kMany});
}

void add_checkpoint(std::vector<Knob>& list, CheckpointConfig& c) {
  list.push_back(
      {"checkpoint", "every", &c.every, "steps between checkpoints; 0: only at the end", 0, kMany});
  list.push_back({"checkpoint", "keep_last", &c.keep_last, "newest checkpoints kept", 1, kMany});
  list.push_back({"checkpoint", "keep_every", &c.keep_every,
                  "checkpoints at multiples of this step are kept for ever; 0: none", 0, kMany});
}

}  // namespace

std::vector<Knob> knobs(Config& config) {
  std::vector<Knob> list;
  add_model(list, config.model);
  add_data(list, config.data);
  add_optimizer(list, config.optimizer);
  add_training(list, config.training);
  add_checkpoint(list, config.checkpoint);
  return list;
}

}  // namespace ballast
