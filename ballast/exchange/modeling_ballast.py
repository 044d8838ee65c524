# SPDX-License-Identifier: Apache-2.0
"""Language models of Ballast in PyTorch, for transformers (trust_remote_code).

`ballast export --format hf` writes this file beside the weights of models that no class of
transformers computes. Logits are those of `ballast eval`: outside of training a token goes to its
best experts, of a BASE layer after the average prices of training, whatever the other tokens do.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast


class BallastConfig(PretrainedConfig):
    model_type = "ballast"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self,
        vocab_size=257,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=256,
        positions="learned",
        rope_base=10000.0,
        rope_stretch=None,
        norm="layer",
        norm_epsilon=1e-5,
        activation="relu",
        query_key_norm="none",
        biases="all",
        logit_cap=0.0,
        tie_word_embeddings=True,
        experts=None,
        use_cache=True,
        **others,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.max_position_embeddings = max_position_embeddings
        self.positions = positions
        self.rope_base = rope_base
        self.rope_stretch = rope_stretch
        self.norm = norm
        self.norm_epsilon = norm_epsilon
        self.activation = activation
        self.query_key_norm = query_key_norm
        self.biases = biases
        self.logit_cap = logit_cap
        self.experts = experts
        self.use_cache = use_cache
        super().__init__(tie_word_embeddings=tie_word_embeddings, **others)


class Norm(nn.Module):
    """LayerNorm, or RMSNorm, which has neither mean nor bias."""

    def __init__(self, width, config, kind=None):
        super().__init__()
        self.epsilon = config.norm_epsilon
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if (kind or config.norm) == "layer" else None

    def forward(self, x):
        if self.bias is not None:
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return normed.to(x.dtype) * self.weight


def activate(x, kind):
    if kind == "swiglu":
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up
    if kind == "gelu":
        return F.gelu(x)
    if kind == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    return F.relu(x).square() if kind == "relu2" else F.relu(x)


class FeedForward(nn.Module):
    """x [T, D] -> what it adds to the stream. `normed`: with a norm of its own."""

    def __init__(self, config, hidden, normed=True):
        super().__init__()
        self.activation = config.activation
        bias = config.biases == "all"
        if normed:
            self.norm = Norm(config.hidden_size, config)
        rows = 2 * hidden if self.activation == "swiglu" else hidden
        self.up = nn.Linear(config.hidden_size, rows, bias=bias)
        self.down = nn.Linear(hidden, config.hidden_size, bias=bias)

    def forward(self, x):
        x = self.norm(x) if hasattr(self, "norm") else x
        return self.down(activate(self.up(x), self.activation))


def rope_frequencies(config, device):
    """Angles a position [W / 2], and a factor of what they turn."""
    width, base, stretch = config.head_dim, config.rope_base, config.rope_stretch
    exponents = torch.arange(0, width, 2, dtype=torch.float, device=device) / width
    plain = 1.0 / base**exponents
    if not stretch:
        return plain, 1.0
    kind, factor = stretch["rope_type"], stretch["factor"]
    if kind == "linear":
        return plain / factor, 1.0
    context = stretch["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = stretch["low_freq_factor"], stretch["high_freq_factor"]
        turns = context * plain / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return plain * kept + plain / factor * (1 - kept), 1.0

    def pair_with(turns):  # the pair that turns so often within the old context
        return width * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))

    first = max(math.floor(pair_with(stretch["beta_fast"])), 0)
    last = min(math.ceil(pair_with(stretch["beta_slow"])), width - 1)
    pairs = torch.arange(width // 2, dtype=torch.float, device=device)
    stretched = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)
    magnitude = stretch.get("attention_factor") or (0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
    return plain / factor * stretched + plain * (1 - stretched), magnitude


def turned(x, cos, sin):
    """x [B, H, N, W]: the pairs (i, i + W / 2) of each head turned by their angles."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, config, block):
        super().__init__()
        self.block, self.heads = block, config.num_attention_heads
        self.heads_kv, self.width = config.num_key_value_heads, config.head_dim
        queries, keys = self.heads * self.width, self.heads_kv * self.width
        self.norm = Norm(config.hidden_size, config)
        self.qkv = nn.Linear(config.hidden_size, queries + 2 * keys, bias=config.biases != "none")
        self.out = nn.Linear(queries, config.hidden_size, bias=config.biases == "all")
        self.by_head = config.query_key_norm == "head"
        if config.query_key_norm != "none":
            self.query_norm = Norm(self.width if self.by_head else queries, config, kind="rms")
            self.key_norm = Norm(self.width if self.by_head else keys, config, kind="rms")

    def heads_of(self, x, norm=None):
        """[B, N, H W] -> [B, H, N, W]"""
        if norm is not None and not self.by_head:
            x = norm(x)
        x = x.unflatten(-1, (-1, self.width))
        if norm is not None and self.by_head:
            x = norm(x)
        return x.transpose(1, 2)

    def forward(self, x, angles, mask, cache):
        sizes = (self.heads * self.width, self.heads_kv * self.width, self.heads_kv * self.width)
        queries, keys, values = self.qkv(self.norm(x)).split(sizes, dim=-1)
        queries = self.heads_of(queries, getattr(self, "query_norm", None))
        keys = self.heads_of(keys, getattr(self, "key_norm", None))
        values = self.heads_of(values)
        if angles is not None:
            queries, keys = turned(queries, *angles), turned(keys, *angles)
        if cache is not None:
            keys, values = cache.update(keys, values, self.block)
        group = self.heads // self.heads_kv
        keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward; None where a layer of experts stands for it."""

    def __init__(self, config, number, dense):
        super().__init__()
        self.attention = Attention(config, number)
        self.feed_forward = FeedForward(config, config.intermediate_size) if dense else None


class Expert(nn.Module):
    """Residual sublayers, one after another: x [T, D] -> what all of them add."""

    def __init__(self, config, hidden, sublayers, normed):
        super().__init__()
        self.sublayer = nn.ModuleList(FeedForward(config, hidden, normed) for _ in range(sublayers))

    def forward(self, x):
        h = x
        for sublayer in self.sublayer:
            h = h + sublayer(h)
        return h - x if len(self.sublayer) > 1 else self.sublayer[0](x)


class Gate(nn.Module):
    def __init__(self, config, count, normed):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count, config.hidden_size))
        if normed:
            self.norm = Norm(config.hidden_size, config)


class ExpertLayer(nn.Module):
    """h + sum over its experts of weight times what the expert makes of h."""

    def __init__(self, config):
        super().__init__()
        experts = config.experts
        self.frame = experts
        own = experts["norm"] == "own"
        if not own:
            self.norm = Norm(config.hidden_size, config)
        normed = experts["features"] == "normed" and (own or experts["look_ahead"])
        if experts["balanced"]:
            self.expert_embeddings = nn.Parameter(torch.zeros(experts["count"], config.hidden_size))
            if normed:
                self.router_norm = Norm(config.hidden_size, config)
            self.register_buffer("prices", torch.zeros(experts["count"]))
        else:
            self.gate = Gate(config, experts["count"], normed)
        shape = (experts["sublayers"], own)
        self.expert = nn.ModuleList(Expert(config, experts["hidden"], *shape) for _ in range(experts["count"]))
        if experts["shared_hidden"] > 0:
            self.shared = Expert(config, experts["shared_hidden"], *shape)

    def routed(self, read):
        """Tokens as the router reads them [T, D] -> their experts and weights, [T, K] each."""
        frame = self.frame
        if frame["balanced"]:
            embeddings, norm = self.expert_embeddings, getattr(self, "router_norm", None)
        else:
            embeddings, norm = self.gate.weight, getattr(self.gate, "norm", None)
        read = norm(read) if norm is not None else read
        affinities = F.linear(read.float(), embeddings.float())  # [T, E]
        scores = affinities
        if frame["scores"] == "cosine":
            scores = scores / embeddings.float().norm(dim=1).clamp_min(1e-20)
        if frame["routing"] == "priced":
            scores = scores - self.prices.float()
        # Of equal experts the one with the lower number is better.
        chosen = scores.sort(dim=1, descending=True, stable=True).indices[:, : frame["per_token"]]
        if frame["gate"] == "sigmoid":
            return chosen, affinities.gather(1, chosen).sigmoid()
        if frame["per_token"] > 1 and frame["renormalise"]:
            return chosen, affinities.gather(1, chosen).softmax(dim=1)
        return chosen, affinities.softmax(dim=1).gather(1, chosen)

    def forward(self, h, earlier=None):
        """h [T, D]; earlier: the same tokens before the last block, which a router with look-ahead reads."""
        normed = self.norm(h) if hasattr(self, "norm") else h
        chosen, weights = self.routed(earlier if self.frame["look_ahead"] and earlier is not None else normed)
        weights = weights.to(h.dtype)
        out = h.clone()
        for number, expert in enumerate(self.expert):
            token, place = torch.where(chosen == number)
            if token.numel() > 0:
                out.index_add_(0, token, weights[token, place, None] * expert(normed[token]))
        return out + self.shared(normed) if hasattr(self, "shared") else out


class BallastForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = BallastConfig
    base_model_prefix = ""
    _no_split_modules = ["Block", "ExpertLayer"]
    _supports_sdpa = True
    _supports_cache_class = True

    def __init__(self, config):
        super().__init__(config)
        width, experts = config.hidden_size, config.experts
        places = experts["places"] if experts else []
        replaced = places if experts and experts["replace"] else []
        self.token_embedding = nn.Parameter(torch.zeros(config.vocab_size, width))
        if config.positions == "learned":
            self.position_embedding = nn.Parameter(torch.zeros(config.max_position_embeddings, width))
        self.block = nn.ModuleList(
            Block(config, number, dense=number + 1 not in replaced) for number in range(config.num_hidden_layers)
        )
        self.layer = nn.ModuleDict({str(place): ExpertLayer(config) for place in places})
        self.output_norm = Norm(width, config)
        if not config.tie_word_embeddings:
            self.output = nn.Linear(width, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module):
        """Weights come from files; what a caller wants fresh is left to them."""

    def get_input_embeddings(self):
        embedding = nn.Embedding(*self.token_embedding.shape, device="meta")
        embedding.weight = self.token_embedding
        return embedding

    def get_output_embeddings(self):
        return None if self.config.tie_word_embeddings else self.output

    def experts_after(self, blocks, x, earlier):
        if str(blocks) not in self.layer:
            return x
        earlier = None if earlier is None else earlier.flatten(0, 1)
        return self.layer[str(blocks)](x.flatten(0, 1), earlier).view_as(x)

    def angles_at(self, positions, dtype):
        """cos and sin [B, 1, N, W] of the positions [B, N]; None: they are learned."""
        if self.config.positions == "learned":
            return None
        frequencies, magnitude = rope_frequencies(self.config, positions.device)
        angles = (positions[..., None].float() * frequencies).repeat(1, 1, 2).unsqueeze(1)
        return (angles.cos() * magnitude).to(dtype), (angles.sin() * magnitude).to(dtype)

    def hidden(self, x, positions, mask, cache):
        """What entered the first block, x [B, N, D] -> the last representations."""
        angles = self.angles_at(positions, x.dtype)
        x = self.experts_after(0, x, None)
        for number, block in enumerate(self.block):
            earlier = x
            x = x + block.attention(x, angles, mask, cache)
            if block.feed_forward is not None:
                x = x + block.feed_forward(x)
            x = self.experts_after(number + 1, x, earlier)
        return self.output_norm(x)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        logits_to_keep=0,
        return_dict=None,
        **ignored,
    ):
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        x = F.embedding(input_ids, self.token_embedding) if inputs_embeds is None else inputs_embeds
        rows, new = x.shape[:2]
        before = past_key_values.get_seq_length() if past_key_values is not None else 0
        places = torch.arange(before, before + new, device=x.device)
        if position_ids is None:
            position_ids = places.expand(rows, new)
        if self.config.positions == "learned":
            x = x + F.embedding(position_ids, self.position_embedding)
        # A token sees itself and what came before it, padding excepted.
        seen = (torch.arange(before + new, device=x.device) <= places[:, None]).expand(rows, 1, -1, -1)
        if attention_mask is not None and attention_mask.dim() == 2:
            itself = torch.arange(before + new, device=x.device) == places[:, None]  # no row is empty
            seen = (seen & attention_mask[:, None, None, : before + new].bool()) | itself
        hidden = self.hidden(x, position_ids, seen, past_key_values)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        output = self.token_embedding if self.config.tie_word_embeddings else self.output.weight
        logits = F.linear(hidden[:, kept], output)
        if self.config.logit_cap > 0:
            logits = self.config.logit_cap * torch.tanh(logits / self.config.logit_cap)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        result = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)
        return result if return_dict is not False else result.to_tuple()
