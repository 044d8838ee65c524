// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ballast/config/choices.h"
#include "ballast/config/router_traits.h"

namespace ballast::config {

// Everything that decides what a run computes. Each member is declared to the outside (TOML key,
// flag, help, range, run record) once, in knobs.cpp; its default stands here.

struct ModelConfig {
  int64_t vocabulary = 0;  // 0: the tokenizer's
  int64_t width = 128;     // D
  int64_t layers = 4;      // L
  int64_t heads = 4;       // H
  int64_t hidden = 0;      // F; 0: 4 D
  int64_t context = 256;   // S

  // The decoder's parts. The defaults are the paper's.
  int64_t heads_kv = 0;    // heads of keys and values, each for H / heads_kv of queries; 0: H
  int64_t head_width = 0;  // W; 0: D / H
  Positions positions = Positions::kLearned;
  double rope_theta = 10'000;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 1;    // by which the context grew
  int64_t rope_context = 0;  // it had before; 0: `context` / `rope_factor`
  // llama3: from this many turns within the old context on angles are partly, and fully, kept;
  // yarn: the same in beta_slow and beta_fast.
  double rope_low = 1, rope_high = 4;
  double rope_magnitude = 0;  // yarn: of the turned queries and keys; 0: 0.1 ln(factor) + 1
  NormKind norm = NormKind::kLayer;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::kRelu;
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;  // of each head, or of all together
  Biases biases = Biases::kAll;  // of projections, feed-forwards and experts; qkv: only these
  bool tied = true;              // the output's matrix is the token embedding
  double logit_cap = 0;          // c tanh(logit / c); 0: logits as they are
  bool document_mask = false;    // attention does not cross documents
  int64_t separator = -1;        // the id at the end of a document; -1: the tokenizer's
  double dropout = 0;  // of the embedding and of what attention and feed-forwards add to the stream

  // 4 D; of swiglu, which has a third matrix, 8/3 D in multiples of 64.
  int64_t feed_forward_width() const;
  int64_t kv_heads() const { return heads_kv > 0 ? heads_kv : heads; }
  int64_t width_of_head() const { return head_width > 0 ? head_width : width / heads; }
  int64_t query_width() const { return heads * width_of_head(); }
  int64_t kv_width() const { return kv_heads() * width_of_head(); }
  bool has_biases() const { return biases == Biases::kAll; }
  bool has_qkv_biases() const { return biases != Biases::kNone; }
  bool is_gated() const { return activation == Activation::kSwiglu; }
};

// The layers of experts within the blocks.
struct ExpertsConfig {
  int64_t layers = 0;           // N; 0: a dense model
  int64_t count = 8;            // E, of each layer
  std::string router = "base";  // base, sparsely_gated (top-2) or switch (top-1)
  // spread: after blocks floor(i L / (N + 1)); top: after the last; replace: in place of the
  // feed-forwards of blocks floor(i L / N), with N = L / 2 of every other one.
  Placement placement = Placement::kSpread;
  ExpertSize size = ExpertSize::kStandard;  // 4, 10 or 27 sublayers over all layers
  int64_t sublayers = 0;  // of each layer; 0: what `size` gives each of the N; replace: 1
  int64_t hidden = 0;     // of each sublayer; 0: the model's feed-forward width
  int64_t per_token = 0;  // K experts of a token; 0: the router's own number
  double shared = 0;      // width of an expert for all tokens, in widths of one; 0: none
  int64_t groups = 0;     // routing groups of a micro-step; 0: as many as workers
  int64_t hops = 1;       // 2: tokens go to experts' machines by way of a worker of their own one
  int64_t chunks = 1;     // that tokens travel to experts in, one computed while others travel
  ExpertNorm norm = ExpertNorm::kOwn;
  // The router's frame: what it reads, how it scores experts and weighs what they give.
  Features features = Features::kNormed;  // raw: the stream itself; normed: a LayerNorm of it
  Gate gate = Gate::kSoftmax;       // over the experts' affinities; or sigmoid of the chosen one's
  bool renormalise = true;          // softmax of several experts: among these, not among all
  Scores scores = Scores::kCosine;  // dot: affinities; cosine: divided by the embedding's length
  double router_rate = 0.25;        // of routers' parameters, as a factor of the learning rate
  double embedding_gain = 0.3;      // BASE: length of a fresh expert embedding
  bool look_ahead = true;           // it reads what entered the last block before the layer
  // Of BASE layers.
  bool shuffle = true;
  TrainingSolver solver = TrainingSolver::kExact;
  // That training allows the exact solver on a GPU, as a part of what the optimum has above a blind
  // spread (assignment::relative_gap); 0: none. On the CPU it is always exact.
  double assignment_gap = 0.001;
  TestRouting test_routing = TestRouting::kAuto;
  double price_decay = 0.98;  // of the average of prices, a step
  bool self_check = false;    // check each assignment
  // Of Sparsely Gated and Switch layers.
  double capacity = -1;  // in training, as a factor of T/E; 0: no limit; -1: the paper's, 2 and 1
  double balance_weight = 0.01;  // of the balance loss
  // Of Sparsely Gated; random: by its gate, as in GShard.
  SecondExpert second_expert = SecondExpert::kAlways;

  const RouterTraits& traits() const { return traits_of_router(router); }
  int64_t experts_of_token() const { return per_token > 0 ? per_token : traits().experts_of_token; }
  // The paper's BASE layer gates where the expert is, by what is there of the token.
  bool gates_at_experts() const {
    return traits().balanced && features == Features::kRaw && gate == Gate::kSigmoid &&
           !look_ahead && experts_of_token() == 1 && norm == ExpertNorm::kOwn;
  }
  TestRouting tested_routing() const;                        // resolved: greedy or priced
  double training_capacity() const;                          // resolved; 0: no limit
  int64_t width_of_expert(const ModelConfig& model) const {  // F of a sublayer, resolved
    return hidden > 0 ? hidden : model.feed_forward_width();
  }
  // F of the expert for all tokens; 0: there is none. Rounded to a multiple of 8.
  int64_t width_of_shared(const ModelConfig& model) const;
  // Residual blocks of each expert of one layer, resolved.
  int64_t sublayers_of_layer() const;
  bool replaces_feed_forwards() const { return layers > 0 && placement == Placement::kReplace; }
  // The number of the last block before each of the N layers, counted from 1 (0: none), ascending.
  // With `replace` it is the block whose feed-forward the layer stands for.
  std::vector<int64_t> places(int64_t blocks) const;
};

// The frame of the routers as their papers have it: of BASE raw features, a sigmoid gate,
// embeddings of length 0.1; of gates LayerNorm and softmax; plain scores, the rate of all
// parameters, no look-ahead. What runs had before there was a choice.
void take_papers_frame(ExpertsConfig& experts);
// "normed features, softmax gate, cosine scores, a quarter of the rate, look-ahead": for people.
std::string frame_in_words(const ExpertsConfig& experts);

struct DataConfig {
  std::vector<std::string> train = {"builtin"};  // PATH or PATH:WEIGHT
  std::vector<std::string> valid;                // empty: the valid split of `train`
  int64_t builtin_bytes = 20'000'000;
  int64_t builtin_vocabulary = 257;  // 257: bytes; more: BPE trained on it
  int64_t builtin_seed = 1;
};

struct OptimizerConfig {
  Algorithm algorithm = Algorithm::kAdam;  // muon: of matrices; Adam of everything else
  double learning_rate = 1e-3;
  Schedule schedule = Schedule::kLinear;
  double decay_part = 0.2;           // stable: of all steps, in which the rate falls at the end
  double final_learning_rate = 0.0;  // as a fraction of learning_rate
  int64_t warmup_steps = 100;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double matrix_rate = 1.0;  // muon: of matrices, as a factor of the learning rate
  double momentum = 0.95;    // muon
  double average = 0.0;      // decay of the average of weights, a step; 0: there is none
  double clip_norm = 1.0;    // 0: no clipping
  // Parameters whose norm is clipped: shared (the paper) or all.
  ClipOver clip_over = ClipOver::kShared;
};

struct TrainingConfig {
  int64_t steps = 1000;
  int64_t batch = 32;       // sequences a step, over all workers and micro-steps
  int64_t micro_steps = 1;  // accumulated before the optimizer moves
  int64_t seed = 1;
  DeviceChoice device = DeviceChoice::kAuto;
  Precision precision = Precision::kAuto;  // auto: fp32 on cpu, bf16 on cuda
  int64_t threads = 0;                     // 0: all cores
  int64_t model_parallel = 1;    // workers that share one model, M; it has workers / M replicas
  bool deterministic = false;    // slower kernels on a GPU that give the same bits each time
  bool graph = true;             // a GPU's step is recorded once and then replayed
  bool shard_optimizer = false;  // its state for what workers share is divided among them
  // Blocks: a block keeps its inputs, the rest is computed again.
  Recompute recompute = Recompute::kNone;
  std::vector<std::string> freeze;  // names of parameters that stay as they are, with *
  double max_time = 0;              // seconds; 0: no limit
  int64_t log_every = 10;
  int64_t validate_every = 250;
  int64_t validate_batches = 8;
  int64_t last_validate_batches = -1;  // -1: the whole split, unless that takes long
  int64_t compare_every = 1000;  // steps between comparisons of all workers' shared parameters
  int64_t sample_every = 0;
  int64_t sample_tokens = 200;
  std::string sample_prompt;
  double spike_factor = 0;   // skip a step whose norm exceeds this times the recent median; 0: off
  int64_t max_skipped = 20;  // consecutive skipped steps before the run stops
};

struct CheckpointConfig {
  int64_t every = 250;  // steps; 0: only at the end
  int64_t keep_last = 2;
  int64_t keep_every = 0;  // steps whose checkpoints are kept for ever; 0: none
};

struct Config {
  ModelConfig model;
  ExpertsConfig experts;
  DataConfig data;
  OptimizerConfig optimizer;
  TrainingConfig training;
  CheckpointConfig checkpoint;
};

// All throw UserError that names the key (and a valid one that is near) and what was wanted.

// The scales at which a file can be read, its own first: paper, gpu, laptop. What differs at
// another scale stands in sections as [gpu.model]; every section is checked, whichever scale is
// read.
std::vector<std::string> scale_names();
void read_config_file(Config& config, const std::string& path, const std::string& scale = "paper");
void read_config_text(Config& config, const std::string& toml, const std::string& origin,
                      const std::string& scale = "paper");
// What a run recorded with to_toml, perhaps before some knobs were there: those have the values
// that all runs had then.
void read_recorded_config(Config& config, const std::string& toml, const std::string& origin);
// One override as written on the command line: key "model.width", value "256".
void set_knob(Config& config, const std::string& key, const std::string& value);
// Ranges are checked as values are set; this checks what involves several values.
void check_config(const Config& config);
// Checks what must fit the number of workers: it divides experts and routing groups, the replicas
// divide the sequences of a micro-step, and model_parallel divides workers, heads and
// feed-forwards. experts.groups and model.vocabulary may still be 0.
void check_workers(const Config& config, int64_t workers);
// The part of it that concerns training.model_parallel: workers, heads, feed-forwards, vocabulary.
void check_model_parallel(const Config& config, int64_t workers);

// The resolved configuration as TOML, every knob with its help, readable by read_config_text.
std::string to_toml(const Config& config);
// Keys whose values differ, as "model.width: 128 -> 256".
enum class Compare {
  kEverything,
  kWhatIsComputed,  // leaves out how a run is watched and kept
};
std::vector<std::string> differences(const Config& before, const Config& after,
                                     Compare compare = Compare::kEverything);

// Every knob's name and value as text.
std::vector<std::pair<std::string, std::string>> knob_values(const Config& config);

struct KnobHelp {
  std::string section, key, type, help, default_value;
};
std::vector<KnobHelp> knob_help();

// "90", "90s", "10m", "2h", "1d" as seconds; `name` is for messages.
double parse_duration(const std::string& name, const std::string& text);
// The candidate that was meant by `word`; empty where none is near. nearest.h tells what that is.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace ballast::config
