"""Layouts and odd shapes drawn from a seed, which `athanor verify --keep-size` compares with one rank."""
import dataclasses
import random


@dataclasses.dataclass
class Drawn:
    """A configuration as `table.key` → value, how many ranks it is for, and the layout that resumes it, if any."""

    seed: int
    ranks: int
    fields: dict
    then: dict

    def options(self, dtype):
        """Returns the arguments of `athanor verify` in addition to the configuration.

        In bf16 the limit of a clamped SwiGLU is out of reach: a number that rounds across it has another gradient, which no bound of
        rounding explains.
        """
        then = [word for key, value in self.then.items() for word in ("--then", f"{key}={toml_value(value)}")]
        limit = ["--set", "model.swiglu_limit=7.0"] if dtype in ("bfloat16", "bf16") and self.fields.get("model.swiglu_limit") else []
        return ["--keep-size", "--dtype", dtype, *limit, *then]

    def toml(self):
        return toml_of(self.fields)

    def summary(self):
        f = self.fields
        degrees = [f"{name} {f[key]}" for name, key in DEGREES if f.get(key, 1) > 1]
        kinds = [f["model.family"], f["parallelism.sharding"], f["train.reduce_dtype"]]
        if "parallelism.pipeline_schedule" in f:
            kinds.append(f["parallelism.pipeline_schedule"])
        if f.get("parallelism.sequence_parallel"):
            kinds.append("sequence_parallel")
        if "model.num_experts" in f:
            kinds += [f"{f['model.num_experts']} experts", f["moe.dispatch"], f["moe.balance"]]
        kinds += features(self)
        return f"{self.ranks} ranks, {' × '.join(degrees) or 'data'}: {' '.join(kinds)}"


DEGREES = [("replicate", "parallelism.data_parallel_replicate_degree"),
           ("expert", "parallelism.expert_parallel_degree"),
           ("tensor", "parallelism.tensor_parallel_degree"),
           ("pipeline", "parallelism.pipeline_parallel_degree")]


def toml_of(fields):
    tables = {}
    for key, value in fields.items():
        table, name = key.rsplit(".", 1)
        if isinstance(value, list) and value and isinstance(value[0], dict):  # a list of tables
            entries = tables.setdefault(f"[{key}]", [])
            for entry in value:
                entries.append("\n".join(f"{name} = {toml_value(x)}" for name, x in entry.items()))
        else:
            tables.setdefault(table, []).append(f"{name} = {toml_value(value)}")
    text = ""
    for table, lines in tables.items():
        for part in lines if table.startswith("[") else ["\n".join(lines)]:
            text += f"[{table}]\n{part}\n\n"
    return text


def toml_value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def draw_layout(seed, most_ranks=12):
    """Draws combinations that are in no list. Equal seeds give equal layouts."""
    r = random.Random(f"layout {seed}")
    ranks = r.choice([n for n in (2, 3, 4, 4, 5, 6, 6, 8, 8, 8, 8, 12) if n <= most_ranks])
    tensor = draw_degree(r, ranks)
    pipeline = draw_degree(r, ranks // tensor)
    data = ranks // tensor // pipeline
    replicate = r.choice(divisors(data))
    f = {
        "parallelism.data_parallel_replicate_degree": replicate,
        "parallelism.data_parallel_shard_degree": r.choice([-1, data // replicate]),
        "parallelism.sharding": r.choice(["none", "optimizer", "ep_aware", "ep_aware", "hierarchical"]),
        "parallelism.mapping": r.choice(["expert_inner", "data_inner", shuffled_axes(r)]),
        "parallelism.recompute": r.sample(["norm", "attention", "moe", "layer"], r.choice([0, 0, 1, 2])),
        "parallelism.bucket_mb": r.choice([0.001, 0.004, 0.03, 25.0]),
        "parallelism.check_collectives": r.random() < 0.2,
        "topology.ranks_per_node": r.choice([0] + divisors(ranks)),
        "topology.nodes_per_supernode": r.choice([0, 1, 2]),
        "train.reduce_dtype": r.choice(["float32"] * 4 + ["bfloat16"]),
        "train.num_threads": 1,
        "train.loss_chunk_tokens": r.choice([1, 7, 512]),
        "train.seed": r.randrange(1000),
        "optimizer.lr": r.choice([1e-4, 1e-3, 4e-3]),
        "optimizer.min_lr": 0.0,
        "optimizer.max_grad_norm": r.choice([0.0, 0.1, 1.0]),
        "optimizer.weight_decay": r.choice([0.0, 0.1]),
        "checkpoint.model_interval": 0,
        "data.attention_scope": r.choice(["instance", "document"]),
    }
    sparse = r.random() < 0.7
    stages = draw_pipeline(r, f, pipeline)
    draw_model(r, f, sparse, tensor, stages)
    draw_batch(r, f, data, tensor)
    if sparse:
        draw_experts(r, f, data)
    more = random.Random(f"more of layout {seed}")  # a separate generator, so that the draws above do not change
    draw_optimizer(more, f)
    draw_positions(more, f)
    draw_edges(more, f, stages, tensor, data)
    if sparse:
        even_out_shares(f)
    if more.random() < 0.15:
        draw_stages(more, f)
    choose_optimizer(random.Random(f"optimizer for layout {seed}"), f)
    change_family(random.Random(f"family of layout {seed}"), f)
    return Drawn(seed, ranks, f, draw_resumption(more, f, ranks) if more.random() < 0.25 else {})


def draw_degree(r, ranks):
    """Draws mostly more than one, and rather two than all."""
    degrees = [d for d in divisors(ranks) if 1 < d <= 6]
    return min(r.choice(degrees), r.choice(degrees)) if degrees and r.random() < 0.65 else 1


def shuffled_axes(r):
    axes = ["pipeline", "replicate", "shard", "expert", "context", "tensor"]
    r.shuffle(axes)
    return axes


def draw_pipeline(r, f, pipeline):
    """Returns the number of stages."""
    if pipeline == 1:
        return 1
    schedule = r.choice(["gpipe", "1f1b", "interleaved_1f1b", "interleaved_1f1b"])
    if schedule == "interleaved_1f1b" and pipeline > 4:
        schedule = "1f1b"  # twelve layers are enough for one test
    f["parallelism.pipeline_parallel_degree"] = pipeline
    f["parallelism.pipeline_schedule"] = schedule
    if schedule == "interleaved_1f1b":
        f["parallelism.virtual_stages"] = r.choice([2, 2, 3])
    return pipeline * f.get("parallelism.virtual_stages", 1)


def draw_split(r, layers, stages):
    """Draws the layers of each stage, at least one."""
    ends = sorted(r.sample(range(1, layers), stages - 1)) + [layers]
    return [end - begin for begin, end in zip([0] + ends, ends)]


def draw_model(r, f, sparse, tensor, stages):
    family = r.choice(["olmoe", "qwen3_moe"] if sparse else ["olmo", "llama", "qwen3", "gpt2"])
    heads = r.choice([1, 2, 3, 4, 6]) if tensor == 1 else tensor * r.choice([1, 1, 2, 3])
    head_dim = r.choice([4, 6, 8, 10])
    f["model.family"] = family
    f["model.hidden_size"] = heads * head_dim
    if family.startswith("qwen3"):
        f["model.head_dim"] = head_dim
        f["model.hidden_size"] = r.randrange(12, 45)
    f["model.num_attention_heads"] = heads
    f["model.num_key_value_heads"] = r.choice([kv for kv in divisors(heads) if kv % tensor == 0 or tensor % kv == 0])
    f["model.num_hidden_layers"] = r.choice([1, 2, 2, 3]) if stages == 1 else stages + r.choice([0, 0, 1, 2])
    f["model.intermediate_size"] = tensor * r.randrange(-(-5 // tensor), 45 // tensor)
    f["model.vocab_size"] = r.randrange(30, 160)
    f["model.tie_word_embeddings"] = r.random() < 0.5
    f["model.initializer_range"] = r.choice([0.05, 0.15])
    if stages > 1 and r.random() < 0.5:
        f["parallelism.pipeline_split"] = draw_split(r, f["model.num_hidden_layers"], stages)
    if family == "qwen3_moe":
        f["model.moe_intermediate_size"] = tensor * r.randrange(-(-3 // tensor), 30 // tensor)
        if f["model.num_hidden_layers"] > 1 and r.random() < 0.4:
            f["model.decoder_sparse_step"] = 2
        elif f["model.num_hidden_layers"] > 2 and r.random() < 0.3:
            f["model.mlp_only_layers"] = r.sample(range(f["model.num_hidden_layers"]), 2)


def draw_batch(r, f, data, tensor):
    micro = r.choice([1, 1, 2, 3])
    count = r.choice([1, 2, 3])
    pipeline = f.get("parallelism.pipeline_parallel_degree", 1)
    if pipeline > 1:
        schedule = f["parallelism.pipeline_schedule"]
        count = {"gpipe": r.choice([1, 2, pipeline, pipeline + 1]),
                 "1f1b": max(1, pipeline + r.choice([-1, 0, 1, 3])),
                 "interleaved_1f1b": pipeline * r.choice([1, 2, 3])}[schedule]
    f["train.micro_batch_size"] = micro
    f["train.global_batch_size"] = data * micro * count
    f["data.seq_len"] = r.randrange(4, 26)
    if tensor > 1:
        f["parallelism.tensor_parallel_degree"] = tensor
        f["parallelism.sequence_parallel"] = r.random() < 0.5
        if f["parallelism.sequence_parallel"]:
            f["data.seq_len"] = tensor * r.randrange(-(-4 // tensor), 1 + 26 // tensor)


def draw_experts(r, f, data):
    degree = r.choice(divisors(data) + [data])
    experts = degree * r.choice([1, 2, 3, 4]) if degree > 1 else r.randrange(3, 17)
    k = r.randrange(1, min(experts - 1, 4) + 1) if experts > 1 else 1
    micro = f["train.micro_batch_size"]
    groups = [micro * d for d in divisors(data)] + divisors(micro)
    f["parallelism.expert_parallel_degree"] = degree
    f["model.num_experts"] = experts
    f["model.num_experts_per_tok"] = k
    f["model.norm_topk_prob"] = r.random() < 0.5
    f["model.router_score"] = r.choice(["softmax", "softmax", "sigmoid"])
    f["model.num_shared_experts"] = r.choice([0, 0, 1])
    f["moe.dispatch"] = r.choice(["allgather", "all_to_all", "all_to_all_2d"])
    f["moe.balance"] = r.choice(["none", "none", "capacity", "swipe", "forced_uniform"])
    f["moe.balance_group"] = r.choice(groups)
    f["moe.capacity_factor"] = r.choice([0.8, 1.25])
    f["moe.capacity_order"] = r.choice(["score", "position"])
    f["moe.combine_weights"] = r.choice(["after", "before"])
    # The pool of a batch consists of all layers and a microbatch of one rank; a group that spans ranks changes it.
    pooled = "parallelism.pipeline_parallel_degree" not in f
    f["moe.aux_scope"] = r.choice(["sequence", "global"] + ["transformers"] * pooled)
    f["moe.router_aux_loss_coef"] = r.choice([0.0, 0.01, 0.5])
    f["moe.router_z_loss_coef"] = r.choice([0.0, 0.001, 0.1])
    f["moe.bias_update_rate"] = r.choice([0.0, 0.0, 0.01])
    f["moe.router_noise"] = r.choice([0.0, 0.0, 0.3])
    if f["moe.balance"] == "none":
        f["moe.balance_group"] = 1
    if f["moe.balance_group"] > micro:
        f["moe.aux_scope"] = r.choice(["sequence", "global"])


def even_out_shares(f):
    """moe.balance swipe: shares of a group's choices must be whole numbers."""
    if f["moe.balance"] != "swipe":
        return
    unit = f["parallelism.tensor_parallel_degree"] if f.get("parallelism.sequence_parallel") else 1
    choices, experts = f["moe.balance_group"] * f["model.num_experts_per_tok"], f["model.num_experts"]
    while f["data.seq_len"] * choices % experts or f["data.seq_len"] % unit:
        f["data.seq_len"] += 1


# optimizer.no_weight_decay over the stages of a pipeline, if a rank does not have every parameter that a pattern names.
PATTERNS_WITH_PIPELINES = True


def draw_optimizer(r, f):
    f["optimizer.betas"] = r.choice([[0.9, 0.99], [0.9, 0.95], [0.9, 0.999], [0.0, 0.99], [0.8, 0.5]])
    f["optimizer.eps"] = r.choice([1e-8, 1e-8, 1e-12, 1e-5, 1e-3])
    f["optimizer.weight_decay"] = r.choice([0.0, 0.1, 1.0, 10.0])
    f["optimizer.max_grad_norm"] = r.choice([0.0, 1e-3, 0.1, 1.0])
    f["optimizer.clip_after_warmup"] = r.random() < 0.2
    if r.random() < 0.4 and (PATTERNS_WITH_PIPELINES or "parallelism.pipeline_parallel_degree" not in f):
        gpt2 = f["model.family"] == "gpt2"
        patterns = ["transformer.wte.weight", "*h.0.*", "*proj.weight", "*"] if gpt2 else [
            "model.embed_tokens.weight", "*layers.0.*", "*proj.weight", "*"]
        patterns += ["*.bias" if gpt2 else "*norm.weight"] * 3 if f["model.family"] != "olmo" else []
        patterns += ["lm_head.*"] if not f["model.tie_word_embeddings"] else []
        f["optimizer.no_weight_decay"] = r.sample(patterns, r.choice([1, 1, 2]))


OPTIMIZERS = ["adamw", "sgd", "lamb", "sophiag", "muon"]


def choose_optimizer(r, f):
    """Draws which optimizer updates what, with its options."""
    name = r.choice(["adamw", "sgd", "lamb", "sophiag", "muon", "muon"])
    f["optimizer.name"] = name
    if name in ("sgd", "muon"):
        f["optimizer.momentum"] = r.choice([0.0, 0.9, 0.95])
        f["optimizer.nesterov"] = r.random() < 0.5
    if name == "sophiag":
        f["optimizer.hessian_interval"] = r.choice([1, 2, 10])
        f["optimizer.rho"] = r.choice([0.04, 0.5])
    if name == "muon":
        f["optimizer.newton_schulz_dtype"] = r.choice(["bfloat16", "float32"])
        f["optimizer.muon_scale"] = r.choice(["keller_jordan", "moonshot"])
    if r.random() < 0.25:
        dense = "model.num_experts" not in f or f["model.family"] == "qwen3_moe"
        matched = r.choice([["embedding"], ["query", "key"], ["*h.0.attn.c_proj.weight" if f["model.family"] == "gpt2" else "*layers.0.*o_proj.weight"]] + ([] if dense else [["expert_up"]]))
        if f["model.tie_word_embeddings"] or matched != ["embedding"]:
            group = {"match": matched, "name": r.choice(["adamw", "sgd", "lamb"]), "lr": f["optimizer.lr"] / 2}
            f["optimizer.groups"] = [group | {"weight_decay": 0.5} if r.random() < 0.5 else group]
    leave_out_options_of_others(f)


def leave_out_options_of_others(f):
    """Leaves out what draw_optimizer drew for optimizers that the run does not have, since it would be refused."""
    names = {f["optimizer.name"]} | {group["name"] for group in f.get("optimizer.groups", [])}
    names |= {"adamw"} if "muon" in names else set()
    for key, owners in (("betas", {"adamw", "lamb", "sophiag"}), ("eps", {"adamw", "lamb"})):
        if not names & owners:
            del f[f"optimizer.{key}"]


def draw_positions(r, f):
    """Draws the clipping of queries, keys and values, and rotary positions with their scalings."""
    if f["model.family"] == "gpt2":
        f = dict(f)  # what is drawn has no place there
    if f["model.family"].startswith("olmo") and r.random() < 0.3:
        f["model.clip_qkv"] = r.choice([0.2, 0.5, 2.0])
    f["model.rope_theta"] = r.choice([10000.0, 10000.0, 100.0, 1e6])
    kind = r.choice(["default", "default", "default", "linear", "dynamic", "llama3", "yarn"])
    if kind == "default":
        return
    f["model.rope_scaling.rope_type"] = kind
    f["model.rope_scaling.factor"] = r.choice([1.5, 4.0])
    if kind in ("llama3", "yarn"):
        f["model.rope_scaling.original_max_position_embeddings"] = r.choice([8, 64, 1024])
    if kind == "yarn":
        f["model.rope_scaling.truncate"] = r.random() < 0.5
        if r.random() < 0.3:
            f["model.rope_scaling.attention_factor"] = 1.2


RELATIVES = {"olmo": ["olmo2", "olmo3"], "llama": ["qwen2", "mistral", "starcoder2", "gpt_neox", "phi3", "gemma2", "gemma3_text"], "olmoe": ["mixtral", "mixtral", "qwen2_moe", "deepseek_v2"]}
WITH_WINDOWS = ("gpt_oss", "qwen2_moe", "gemma2", "gemma3_text", "phi3", "olmo3", "qwen2", "qwen3", "qwen3_moe", "mistral", "mixtral", "starcoder2")


def change_family(r, f):
    """Draws a family that is made of other parts and takes what was drawn for the first one, and windows."""
    family = r.choice([f["model.family"], *RELATIVES.get(f["model.family"], [])])
    if family == "mixtral" and f["model.num_experts_per_tok"] == 1:
        return  # its router would learn nothing from the loss
    if family == "olmoe" and r.random() < 0.2:
        family = "m6"
        take_names_of_m6(f)
    if family not in ("olmo", "olmoe"):
        f.pop("model.clip_qkv", None)
    if family == "mixtral":
        f["model.norm_topk_prob"] = True
        if r.random() < 0.5:
            family = "gpt_oss"
            f["model.swiglu_alpha"], f["model.swiglu_limit"] = r.choice([0, 1.1]), r.choice([0, 0.3])
    if family in ("gpt_neox", "phi3"):
        turned = [n for n in (2, 4, 6) if n <= f["model.hidden_size"] // f["model.num_attention_heads"]]
        f["model.partial_rotary_factor"] = r.choice(turned) / (f["model.hidden_size"] // f["model.num_attention_heads"])
        if family == "phi3":
            for key in [key for key in f if key.startswith("model.rope_scaling.")]:
                del f[key]
    if family == "gpt2" and r.random() < 0.5:
        f["model.scale_attn_by_inverse_layer_idx"] = True
    if family == "qwen2_moe":
        f["model.num_shared_experts"] = max(1, f.get("model.num_shared_experts", 0))
        f["model.shared_expert_intermediate_size"] = r.choice([0, 2]) * f["model.intermediate_size"]
    if family == "deepseek_v2":
        f["model.num_shared_experts"] = max(1, f.get("model.num_shared_experts", 0))
        f["model.num_key_value_heads"] = 0
        f["model.norm_topk_prob"] = False
        f["model.q_lora_rank"] = r.choice([0, 3, 9])  # a norm of one number has a gradient that is zero by algebra
        f["model.kv_lora_rank"] = r.choice([3, 7, 16])
        f["model.qk_nope_head_dim"], f["model.qk_rope_head_dim"] = r.choice([2, 6, 8]), r.choice([2, 4, 10])
        f["model.v_head_dim"] = r.choice([1, 5, 8, 24])
        groups = [n for n in range(2, f["model.num_experts"] + 1) if f["model.num_experts"] % n == 0]
        if groups and r.random() < 0.5:
            f["model.n_group"] = r.choice(groups)
            least = -(-f["model.num_experts_per_tok"] * f["model.n_group"] // f["model.num_experts"])
            f["model.topk_group"] = r.randrange(least, f["model.n_group"] + 1)
        if r.random() < 0.5:
            family = "deepseek_v3"
            f["model.norm_topk_prob"] = f["model.num_experts_per_tok"] > 1 and r.random() < 0.5
    if family in ("gemma2", "gemma3_text"):
        f["model.query_pre_attn_scalar"] = r.choice([0, 3, 100])
        f["model.final_logit_softcapping"] = r.choice([0, 2.0, 30.0])
        if family == "gemma2":
            f["model.attn_logit_softcapping"] = r.choice([0, 1.5, 50.0])
        else:
            f["model.window_rope_theta"] = r.choice([0, 50.0, 1e4])
    if family == "gpt_neox":  # its names of what patterns match
        own = {"*layers.0.*o_proj.weight": "*layers.0.*attention.dense.weight", "model.embed_tokens.weight": "gpt_neox.embed_in.weight",
               "lm_head.*": "embed_out.*"}
        f["optimizer.no_weight_decay"] = [own.get(word, word) for word in f.get("optimizer.no_weight_decay", [])]
        for group in f.get("optimizer.groups", []):
            group["match"] = [own.get(word, word) for word in group["match"]]
    f["model.family"] = family
    if family in WITH_WINDOWS and r.random() < 0.6:
        f["model.sliding_window"] = r.choice([1, 3, 7, 40])
        if family in ("olmo3", "qwen2", "qwen2_moe", "qwen3", "gemma2", "gemma3_text", "gpt_oss") and r.random() < 0.6:
            layers = f["model.num_hidden_layers"]
            f["model.full_attention_layers"] = sorted(r.sample(range(layers), r.randrange(1, layers + 1)))
    if family == "phi3" and r.random() < 0.5:
        dims = f["model.hidden_size"] // f["model.num_attention_heads"]
        pairs = int(dims * f["model.partial_rotary_factor"]) // 2
        f["model.rope_scaling.rope_type"] = "longrope"
        f["model.rope_scaling.factor"] = r.choice([1.0, 4.0])
        f["model.rope_scaling.original_max_position_embeddings"] = r.choice([8, 1024])
        for key in ("short_factor", "long_factor"):
            f[f"model.rope_scaling.{key}"] = [r.choice([1.0, 1.25, 6.0]) for _ in range(pairs)]


def take_names_of_m6(f):
    """Leaves out rotary positions, and replaces the names that patterns match."""
    for key in [key for key in f if key.startswith("model.rope_")]:
        del f[key]
    own = {"*layers.0.*o_proj.weight": "*h.0.attn.c_proj.weight", "model.embed_tokens.weight": "transformer.wte.weight", "*layers.0.*": "*h.0.*",
           "*norm.weight": "*.bias"}
    if "optimizer.no_weight_decay" in f:
        f["optimizer.no_weight_decay"] = [own.get(word, word) for word in f["optimizer.no_weight_decay"]]
    for group in f.get("optimizer.groups", []):
        group["match"] = [own.get(word, word) for word in group["match"]]


def draw_edges(r, f, stages, tensor, data):
    """Draws values that are as small, as large or as deep as possible."""
    f["parallelism.bucket_mb"] = r.choice([4e-6, f["parallelism.bucket_mb"], f["parallelism.bucket_mb"]])
    if "model.num_experts" in f:
        f["model.routed_scaling_factor"] = r.choice([1.0, 1.0, 2.5, 0.3])
        if r.random() < 0.15 and f["model.num_experts"] <= 12:
            f["model.num_experts_per_tok"] = f["model.num_experts"]
        if r.random() < 0.15:
            f["moe.dispatch"] = "auto"
            f["moe.dispatch_chunks"] = 0
    if r.random() < 0.1:  # one token that has a target
        shares_tokens = f.get("parallelism.sequence_parallel")
        f["data.seq_len"] = max(2, tensor) if shares_tokens else 2
        f["train.micro_batch_size"], f["train.global_batch_size"] = 1, f["train.global_batch_size"] // f["train.micro_batch_size"]
        if "model.num_experts" in f:
            f["moe.balance_group"] = 1
    elif r.random() < 0.12:
        make_deep(r, f, stages, tensor)


def make_deep(r, f, stages, tensor):
    """Makes many layers, so thin that they are cheap, in small buckets: many collectives at once."""
    layers = max(stages, r.choice([24, 40, 64]))
    heads = tensor * r.choice([1, 2]) if tensor > 1 else r.choice([1, 2])
    f["model.num_hidden_layers"] = layers
    f["model.num_attention_heads"] = heads
    f["model.num_key_value_heads"] = heads
    f["model.hidden_size"] = heads * 4
    if "model.head_dim" in f:
        f["model.head_dim"] = 4
    f["model.intermediate_size"] = tensor * 2
    if "model.moe_intermediate_size" in f:
        f["model.moe_intermediate_size"] = tensor * 2
    if "model.mlp_only_layers" in f:
        f["model.mlp_only_layers"] = sorted(r.sample(range(layers), layers // 3))
    if "parallelism.pipeline_split" in f:
        f["parallelism.pipeline_split"] = draw_split(r, layers, stages)
    f["data.seq_len"] = min(f["data.seq_len"], 8)
    if f.get("parallelism.sequence_parallel"):
        f["data.seq_len"] = 2 * tensor
    f["parallelism.bucket_mb"] = r.choice([4e-6, 0.001])


def draw_stages(r, f):
    """Draws training phases. Verify runs the first, whose values replace the run's."""
    first = {"steps": 3, "warmup_steps": 0, "lr": f["optimizer.lr"] * 2, "path": "first"}
    for key in ("global_batch_size", "micro_batch_size"):
        first[key] = f[f"train.{key}"]
    first["seq_len"] = f["data.seq_len"]
    f["train.stages"] = [first, {"steps": 5, "schedule": r.choice(["constant", "wsd"]), "warmup_steps": 2}]
    f["train.steps"] = 8


def draw_resumption(r, f, ranks):
    """Draws another layout of the same model on the same ranks, which continues from a checkpoint."""
    then = {
        "parallelism.sharding": r.choice(["none", "optimizer", "ep_aware", "hierarchical"]),
        "parallelism.mapping": r.choice(["expert_inner", "data_inner"]),
        "parallelism.bucket_mb": r.choice([4e-6, 0.01, 25.0]),
        "parallelism.recompute": r.sample(["norm", "attention", "moe"], r.choice([0, 1])),
    }
    groups_span_ranks = f.get("moe.balance_group", 1) > f["train.micro_batch_size"]
    pooled = f.get("moe.aux_scope") == "transformers"  # over the microbatch of a rank
    if groups_span_ranks or pooled:
        return then
    # All ranks are data ranks, or half of them are, each with a microbatch of one sequence.
    batch, per_balance_group = f["train.global_batch_size"], f.get("moe.balance_group", 1)
    data = next((d for d in (ranks, ranks // 2) if d > 0 and ranks % d == 0 and batch % (d * per_balance_group) == 0), None)
    if data is None:
        return then
    heads, kv = f["model.num_attention_heads"], f["model.num_key_value_heads"]
    layers = f["model.num_hidden_layers"]
    rest = ranks // data
    cuts = [cut for cut in ("tensor", "pipeline")
            if rest == 1 or (cut == "pipeline" and layers >= rest) or
            (cut == "tensor" and heads % rest == 0 and kv % rest == 0 and f["model.intermediate_size"] % rest == 0
             and f.get("model.moe_intermediate_size", rest) % rest == 0)]
    if not cuts:
        return then
    cut = r.choice(cuts)
    if cut == "pipeline" and rest > 1 and "optimizer.no_weight_decay" in f and not PATTERNS_WITH_PIPELINES:
        return then
    then |= {
        "parallelism.data_parallel_replicate_degree": 1,
        "parallelism.data_parallel_shard_degree": -1,
        "parallelism.tensor_parallel_degree": rest if cut == "tensor" else 1,
        "parallelism.pipeline_parallel_degree": rest if cut == "pipeline" else 1,
        "parallelism.pipeline_schedule": "1f1b",
        "parallelism.virtual_stages": 1,
        "parallelism.pipeline_split": [],
        "parallelism.sequence_parallel": False,
        "train.micro_batch_size": per_balance_group,
    }
    if "model.num_experts" in f:
        experts = f["model.num_experts"]
        then["parallelism.expert_parallel_degree"] = r.choice([d for d in divisors(data) if experts % d == 0])
    return then


# ---- What was drawn


def features(drawn):
    """Returns the properties of this draw that not every draw has: names for a summary and for a table of coverage."""
    f = drawn.fields
    found = []

    def note(name, has):
        if has:
            found.append(name)

    note(f"optimizer {f['optimizer.name']}", True)
    note("optimizer groups", f.get("optimizer.groups"))
    note("decay patterns", f.get("optimizer.no_weight_decay"))
    note("clips", f["optimizer.max_grad_norm"] in (1e-3, 0.1))
    note("clip_qkv", f.get("model.clip_qkv"))
    note(f"rope {f.get('model.rope_scaling.rope_type')}", "model.rope_scaling.rope_type" in f)
    note("window", f.get("model.sliding_window", 40) < f["data.seq_len"])
    note("caps", f.get("model.attn_logit_softcapping") or f.get("model.final_logit_softcapping"))
    note("partial rotation", f.get("model.partial_rotary_factor", 1) < 1)
    note("scaling factor", f.get("model.routed_scaling_factor", 1) != 1)
    note("k = E", "model.num_experts" in f and f["model.num_experts_per_tok"] == f["model.num_experts"])
    note("one token", f["data.seq_len"] == 2)
    note("deep", f["model.num_hidden_layers"] >= 24)
    note("smallest buckets", f["parallelism.bucket_mb"] == 4e-6)
    note("checked", f["parallelism.check_collectives"])
    note("stages", "train.stages" in f)
    note("resumed", drawn.then)
    return found


# Families that differ from another one in nothing that coverage does not count by itself.
KIN = {"mixtral": "olmoe", "mistral": "llama", "phi3": "llama", "starcoder2": "gpt_neox", "olmo3": "olmo2", "gemma3_text": "gemma2", "deepseek_v3": "deepseek_v2"}


def covered(seeds):
    """Returns the names of the properties that these seeds draw, with one family for all of its kin."""
    drawn = {name for name, _ in coverage([draw_layout(seed) for seed in seeds])}
    families = {name.removeprefix("family ") for name in drawn if name.startswith("family ")}
    return {name for name in drawn if not name.startswith("family ")} | {KIN.get(family, family) for family in families}


def coverage(draws):
    """Counts how many of the draws have which property: (name, count), by kind."""
    counts = {}

    def add(name):
        counts[name] = counts.get(name, 0) + 1

    for drawn in draws:
        f = drawn.fields
        for key in ("model.family", "parallelism.sharding", "parallelism.pipeline_schedule", "train.reduce_dtype",
                    "data.attention_scope", "moe.dispatch", "moe.balance", "moe.aux_scope", "model.router_score"):
            if key in f:
                add(f"{key.split('.')[1]} {f[key]}")
        for name, key in DEGREES:
            if f.get(key, 1) > 1:
                add(f"{name} ranks")
        for flag in ("parallelism.sequence_parallel", "model.tie_word_embeddings", "parallelism.recompute"):
            if f.get(flag):
                add(flag.split(".")[1])
        for name in features(drawn):
            add(name)
    return sorted(counts.items())


def coverage_table(draws):
    cells = [f"{name:<28}{count:>4}" for name, count in coverage(draws)]
    rows = -(-len(cells) // 3)
    return "\n".join("   ".join(cells[row::rows]) for row in range(rows))
