// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/knobs.h"

#include <string_view>
#include <type_traits>
#include <utility>

namespace ballast::config {
namespace {

// Adds the knobs of one section.
class Section {
 public:
  Section(std::string name, std::vector<Knob>& list) : name_(std::move(name)), list_(list) {}

  Knob& add(std::string key, Knob::Target target, std::string help) {
    return list_.emplace_back(Knob{name_, std::move(key), target, std::move(help)});
  }
  Knob& add(std::string key, Knob::Target target, double low, double high, std::string help) {
    Knob& knob = add(std::move(key), target, std::move(help));
    knob.low = low;
    knob.high = high;
    return knob;
  }
  Knob& add(std::string key, std::string* target, std::vector<std::string> choices,
            std::string help) {
    Knob& knob = add(std::move(key), target, std::move(help));
    knob.choices = std::move(choices);
    return knob;
  }
  template <typename Enum>
  requires std::is_enum_v<Enum> Knob& add(std::string key, Enum* target, std::string help) {
    const Knob::Choice choice{[=] { return static_cast<size_t>(*target); },
                              [=](size_t value) { *target = static_cast<Enum>(value); }};
    Knob& knob = add(std::move(key), choice, std::move(help));
    for (const std::string_view name : names_of(Enum())) knob.choices.emplace_back(name);
    return knob;
  }

 private:
  std::string name_;
  std::vector<Knob>& list_;
};

void add_model(std::vector<Knob>& list, ModelConfig& m) {
  Section section("model", list);
  section.add("vocabulary", &m.vocabulary, 0, 1 << 24,
              "tokens the model knows; 0: as many as the tokenizer has");
  section.add("width", &m.width, 1, 1 << 20, "width D of the token representations");
  section.add("layers", &m.layers, 1, 10000, "transformer blocks L");
  section.add("heads", &m.heads, 1, 4096, "attention heads; must divide the width");
  section.add("hidden", &m.hidden, 0, 1 << 22,
              "feed-forward width F; 0: 4 times the width, with swiglu 8/3 times");
  section.add("context", &m.context, 1, 1 << 20, "tokens a sequence holds, S");
}

// What the decoder is made of.
void add_decoder(std::vector<Knob>& list, ModelConfig& m) {
  Section section("model", list);
  section.add("heads_kv", &m.heads_kv, 0, 4096,
              "heads of keys and values, which groups of query heads share; 0: as many as heads");
  section.add("head_width", &m.head_width, 0, 1 << 16,
              "width of a head; 0: the model's width / heads");
  section.add("positions", &m.positions,
              "how tokens know their place: a learned embedding, or queries and keys turned by it");
  section.add("rope_theta", &m.rope_theta, 1, kMany, "rope: base of the wavelengths");
  section.add("rope_scaling", &m.rope_scaling,
              "rope: how angles were stretched to a longer context; by a factor alone, or as Llama "
              "3 and YaRN do it");
  section.add("rope_factor", &m.rope_factor, 1, 1 << 20, "rope_scaling: factor of the context");
  section.add("rope_context", &m.rope_context, 0, 1 << 24,
              "rope_scaling llama3, yarn: the context before; 0: context / rope_factor");
  section.add("rope_low", &m.rope_low, 0, 1 << 20,
              "rope_scaling: turns within the old context up to which angles are stretched fully "
              "(low_freq_factor, beta_slow)");
  section.add("rope_high", &m.rope_high, 0, 1 << 20,
              "rope_scaling: turns from which they are kept (high_freq_factor, beta_fast)");
  section.add("rope_magnitude", &m.rope_magnitude, 0, 1000,
              "rope_scaling yarn: factor of queries and keys; 0: 0.1 ln(rope_factor) + 1");
  section.add("norm", &m.norm, "LayerNorm, or RMSNorm: no mean and no bias");
  section.add("norm_epsilon", &m.norm_epsilon, 0, 1, "added to the variance in norms");
  section.add("activation", &m.activation,
              "of feed-forwards and experts; swiglu: the sigmoid-weighted product of two matrices");
  section.add("query_key_norm", &m.query_key_norm,
              "an RMSNorm of queries and keys, of each head or of the whole width");
  section.add("biases", &m.biases,
              "all: of every matrix of blocks and experts; qkv: of queries, keys and values only");
  section.add("tied", &m.tied, "the output's matrix is the token embedding; false: its own");
  section.add("logit_cap", &m.logit_cap, 0, 1e6,
              "c: logits become c tanh(logit / c); 0: as they are");
  section.add("document_mask", &m.document_mask,
              "attention does not cross the boundaries of documents");
  section.add("separator", &m.separator, -1, 1 << 24,
              "document_mask: the id at the end of a document; -1: the tokenizer's end of text");
  section.add("dropout", &m.dropout, 0, 0.99,
              "part of the embedding, and of what attention and feed-forwards add, that a step "
              "leaves out");
}

void add_experts(std::vector<Knob>& list, ExpertsConfig& e) {
  Section section("experts", list);
  section.add("layers", &e.layers, 0, 10000, "layers of experts N; 0: a dense model");
  section.add("count", &e.count, 1, 16384, "experts E of each layer");
  section.add(
      "router", &e.router, router_names(),
      "who decides where tokens go: base, balanced assignment; sparsely_gated, the two best "
      "by a softmax gate; switch, the best one");
  section.add("placement", &e.placement,
              "where the layers stand; spread: after blocks floor(i L / (N + 1)), top: after the "
              "last block, replace: in place of the feed-forwards of blocks floor(i L / N)");
  section.add("size", &e.size,
              "the paper's experts: 4, 10 or 27 sublayers, divided among the layers");
  section.add("sublayers", &e.sublayers, 0, 10000,
              "residual feed-forward blocks of each expert of a layer; 0: what experts.size gives, "
              "and 1 with placement replace");
  section.add("hidden", &e.hidden, 0, 1 << 22,
              "hidden width of an expert; 0: the model's feed-forward width");
  section.add("per_token", &e.per_token, 0, 64,
              "experts of each token; base: each expert still gets equally many tokens; 0: two for "
              "sparsely_gated, else one");
  section.add("shared", &e.shared, 0, 64,
              "width of an expert that all tokens pass beside their own, as a factor of "
              "an expert's hidden width; 0: none");
  section.add("groups", &e.groups, 0, 1 << 20,
              "routing groups of a micro-step, each assigned by itself; 0: one for each worker the "
              "run starts with, kept when it goes on with others");
  section
      .add("hops", &e.hops, 1, 2,
           "how tokens reach experts where machines have several workers, equally many on each; 1: "
           "straight; 2: within the machine first, then from machine to machine in fewer messages")
      .operational();
  section
      .add("chunks", &e.chunks, 1, 64,
           "parts in which a training's tokens travel to experts on other workers: one is computed "
           "while others travel; gates without a capacity send all at once")
      .operational();
  section.add("norm", &e.norm,
              "own: each expert norms its tokens; layer: the layer does, once for all experts and "
              "for a router without look-ahead (placement replace, one sublayer)");
}

// How the layers route.
void add_routing(std::vector<Knob>& list, ExpertsConfig& e) {
  Section section("experts", list);
  section.add("features", &e.features,
              "what the router reads: a LayerNorm of the tokens, or the tokens as they are, as in "
              "the BASE paper");
  section.add("gate", &e.gate,
              "how much of an expert's output a token takes: its probability among all experts, or "
              "the sigmoid of its affinity alone, as in the BASE paper");
  section.add("renormalise", &e.renormalise,
              "gate softmax, several experts of a token: their weights sum to one; false: they are "
              "their probabilities among all experts");
  section.add("scores", &e.scores,
              "what decides who gets a token: affinities divided by the length of the expert's "
              "embedding, or as they are, as in the papers; the gate takes them undivided");
  section.add("router_rate", &e.router_rate, 0, 100,
              "learning rate of the routers' parameters, as a factor of the others'");
  section.add("embedding_gain", &e.embedding_gain, 0, 100,
              "base: length of a fresh expert embedding; 0.1 in the authors' code");
  section.add("look_ahead", &e.look_ahead,
              "the router reads the tokens as they entered the last block before the layer; "
              "false: as they enter the layer, as in the papers");
  section.add("shuffle", &e.shuffle,
              "base: mix the tokens of all groups at random before assigning");
  section.add("solver", &e.solver,
              "base: how tokens are assigned in training: the optimum, the paper's auction, or "
              "Sinkhorn");
  section.add("assignment_gap", &e.assignment_gap, 0, 0.5,
              "base, solver exact on a GPU: how far from the optimum an assignment in training may "
              "end, of what the optimum has above a blind spread; 0: exact, as on the CPU always");
  section
      .add(
          "test_routing", &e.test_routing,
          "how validation and samples route: greedy, each token to its best expert; priced (base), "
          "to the best after the average prices of training; auto: priced for base, else greedy")
      .operational();
  section.add("price_decay", &e.price_decay, 0, 0.999999,
              "base: how much of the average of prices a step keeps");
  section
      .add("self_check", &e.self_check, "base: check that every assignment is valid and balanced")
      .operational();
  section.add(
      "capacity", &e.capacity, -1, kMany,
      "sparsely_gated, switch: most tokens an expert takes in training from a routing group, as a "
      "factor of its fair share; the others pass it by; 0: no limit, -1: the paper's, 2 for "
      "sparsely_gated and 1 for switch");
  section.add("balance_weight", &e.balance_weight, 0, kMany,
              "sparsely_gated, switch: weight of the loss that asks for balanced experts");
  section.add("second_expert", &e.second_expert,
              "sparsely_gated: use a token's second expert always, or with twice its gate as the "
              "probability, as in GShard");
}

void add_data(std::vector<Knob>& list, DataConfig& d) {
  Section section("data", list);
  section.add("train", &d.train,
              "what to train on: builtin, folders made by `ballast prepare`, or token files; PATH "
              "or PATH:WEIGHT, several mixed by weight");
  section.add("valid", &d.valid,
              "what to validate on; empty: the valid split of the training data");
  section.add("builtin_bytes", &d.builtin_bytes, 10'000, kMany,
              "size of the built-in corpus, in bytes");
  section.add("builtin_vocabulary", &d.builtin_vocabulary, 257, 65'536,
              "vocabulary for the built-in corpus; 257: bytes, more: a BPE trained on it");
  section.add("builtin_seed", &d.builtin_seed, 0, kMany,
              "which built-in corpus: another seed, another text");
}

void add_optimizer(std::vector<Knob>& list, OptimizerConfig& o) {
  Section section("optimizer", list);
  section.add("algorithm", &o.algorithm,
              "adam, or muon: orthogonalised momentum for matrices of blocks and experts, and Adam "
              "for embeddings, norms, biases, routers");
  section.add("learning_rate", &o.learning_rate, 0, 10,
              "highest learning rate, reached after the warm-up");
  section.add("final_learning_rate", &o.final_learning_rate, 0, 1,
              "learning rate at the last step, as a fraction of the highest");
  section.add("warmup_steps", &o.warmup_steps, 0, kMany,
              "steps of linear warm-up before the decay");
  section.add("schedule", &o.schedule,
              "how the rate falls after the warm-up: linear, cosine, or stable and linear at the "
              "end");
  section.add("decay_part", &o.decay_part, 0, 1,
              "schedule stable: part of all steps in which the rate falls");
  section.add("beta1", &o.beta1, 0, 0.9999999, "Adam's decay of the first moment");
  section.add("beta2", &o.beta2, 0, 0.9999999, "Adam's decay of the second moment");
  section.add("epsilon", &o.epsilon, 1e-20, 1, "Adam's epsilon");
  section.add("weight_decay", &o.weight_decay, 0, 10,
              "decoupled weight decay of matrices (AdamW); 0: plain Adam");
  section.add("matrix_rate", &o.matrix_rate, 0, 1000,
              "muon: learning rate of matrices, as a factor of the others'; updates are scaled to "
              "the size of Adam's");
  section.add("momentum", &o.momentum, 0, 0.9999999, "muon: decay of the momentum");
  section.add("average", &o.average, 0, 0.9999999,
              "decay of an average of the weights, a step, for --average of eval, generate and "
              "export; 0: none is kept");
  section.add("clip_norm", &o.clip_norm, 0, kMany,
              "largest gradient norm; longer gradients are scaled down to it; 0: no clipping");
  section.add("clip_over", &o.clip_over,
              "whose norm is taken for clipping: the shared parameters', as in the paper, or also "
              "the experts'");
}

void add_training(std::vector<Knob>& list, TrainingConfig& t) {
  Section section("training", list);
  section
      .add("steps", &t.steps, 1, kMany,
           "optimizer steps in all; the learning rate decays until then")
      .operational();
  section.add("batch", &t.batch, 1, 1 << 24, "sequences a step, over all workers and micro-steps");
  section.add("micro_steps", &t.micro_steps, 1, 1 << 16,
              "parts a step's batch is computed in, one after another");
  section.add("seed", &t.seed, 0, kMany, "decides initial weights, data order, samples");
  section.add("device", &t.device, "where to compute; auto: a GPU if one is found").operational();
  section.add("precision", &t.precision,
              "auto: fp32 on cpu, bf16 with fp32 master weights on cuda");
  section.add("threads", &t.threads, 0, 4096, "CPU threads; 0: all cores").operational();
  section
      .add(
          "model_parallel", &t.model_parallel, 1, 4096,
          "workers M that share each replica of the model: heads, feed-forwards and vocabulary are "
          "divided among them; must divide the workers")
      .operational();
  section
      .add("shard_optimizer", &t.shard_optimizer,
           "divide Adam's state (moments, average, master weights) for parameters that several "
           "workers hold among these; the same model and checkpoints, less memory a worker")
      .operational();
  section.add("deterministic", &t.deterministic,
              "on a GPU, use kernels that give the same bits on every run");
  section
      .add("graph", &t.graph,
           "on a GPU, record a step once and replay it (the same numbers, faster); false: plainly")
      .operational();
  section
      .add("recompute", &t.recompute,
           "blocks: attention and feed-forward keep only what enters their block and are computed "
           "again on the way back (the same numbers; less memory, more time)")
      .operational();
  section.add("freeze", &t.freeze,
              "names of parameters that do not change, with * for anything: token_embedding, "
              "block.*");
  section
      .add("max_time", &t.max_time, 0, kMany,
           "stop cleanly after this time (90, 90s, 10m, 2h); 0: no limit")
      .operational()
      .duration();
}

// What is said and tried on the way.
void add_watching(std::vector<Knob>& list, TrainingConfig& t) {
  Section section("training", list);
  section.add("log_every", &t.log_every, 1, kMany, "steps between step lines").operational();
  section
      .add("validate_every", &t.validate_every, 0, kMany,
           "steps between validations; 0: only at the end")
      .operational();
  section
      .add("validate_batches", &t.validate_batches, 0, kMany,
           "batches a validation takes, spread evenly over the validation set; 0: all of it")
      .operational();
  section
      .add("last_validate_batches", &t.last_validate_batches, -1, kMany,
           "batches the last validation takes; 0: the whole validation set; -1: the whole set, or "
           "as "
           "the others where that would take longer than a tenth of the training")
      .operational();
  section
      .add("compare_every", &t.compare_every, 0, kMany,
           "steps between checks that the shared parameters are equal on all workers; 0: never")
      .operational();
  section
      .add("sample_every", &t.sample_every, 0, kMany,
           "steps between text samples; 0: only at the end")
      .operational();
  section.add("sample_tokens", &t.sample_tokens, 0, 100'000, "tokens a sample has; 0: no samples")
      .operational();
  section
      .add("sample_prompt", &t.sample_prompt,
           "what a sample starts with; empty: the start of a document")
      .operational();
  section.add("spike_factor", &t.spike_factor, 0, kMany,
              "skip a step whose gradient norm exceeds this many times the recent median; 0: off");
  section
      .add("max_skipped", &t.max_skipped, 1, kMany, "skipped steps in a row before the run stops")
      .operational();
}

void add_checkpoint(std::vector<Knob>& list, CheckpointConfig& c) {
  Section section("checkpoint", list);
  section.add("every", &c.every, 0, kMany, "steps between checkpoints; 0: only at the end")
      .operational();
  section.add("keep_last", &c.keep_last, 1, kMany, "newest checkpoints kept").operational();
  section
      .add("keep_every", &c.keep_every, 0, kMany,
           "checkpoints at multiples of this step are kept for ever; 0: none")
      .operational();
}

}  // namespace

std::vector<Knob> knobs(Config& config) {
  std::vector<Knob> list;
  add_model(list, config.model);
  add_decoder(list, config.model);
  add_experts(list, config.experts);
  add_routing(list, config.experts);
  add_data(list, config.data);
  add_optimizer(list, config.optimizer);
  add_training(list, config.training);
  add_watching(list, config.training);
  add_checkpoint(list, config.checkpoint);
  return list;
}

}  // namespace ballast::config
