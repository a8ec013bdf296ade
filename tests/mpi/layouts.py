"""Layouts and odd shapes drawn from a seed, to be held against one rank by `athanor verify --keep-size`."""
import dataclasses
import random


@dataclasses.dataclass
class Drawn:
    """A configuration as `table.key` → value, and how many ranks it is for."""

    seed: int
    ranks: int
    fields: dict

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
        return f"{self.ranks} ranks, {' × '.join(degrees) or 'data'}: {' '.join(kinds)}"


DEGREES = [("replicate", "parallelism.data_parallel_replicate_degree"),
           ("expert", "parallelism.expert_parallel_degree"),
           ("tensor", "parallelism.tensor_parallel_degree"),
           ("pipeline", "parallelism.pipeline_parallel_degree")]


def toml_of(fields):
    tables = {}
    for key, value in fields.items():
        table, name = key.split(".")
        tables.setdefault(table, []).append(f"{name} = {toml_value(value)}")
    return "\n".join(f"[{table}]\n" + "\n".join(lines) + "\n" for table, lines in tables.items())


def toml_value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def draw_layout(seed, most_ranks=12):
    """What no list names. Equal seeds give equal layouts."""
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
    return Drawn(seed, ranks, f)


def draw_degree(r, ranks):
    """Mostly more than one, and rather two than all."""
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
    """Layers of each stage, at least one."""
    ends = sorted(r.sample(range(1, layers), stages - 1)) + [layers]
    return [end - begin for begin, end in zip([0] + ends, ends)]


def draw_model(r, f, sparse, tensor, stages):
    family = r.choice(["olmoe", "qwen3_moe"] if sparse else ["olmo", "llama", "qwen3"])
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
    # A batch's pool is all layers' and a microbatch of one rank; a group that spans ranks makes it another one.
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
    if f["moe.balance"] == "swipe":  # shares of a group's choices must come out even
        unit = f["parallelism.tensor_parallel_degree"] if f.get("parallelism.sequence_parallel") else 1
        while f["moe.balance_group"] * f["data.seq_len"] * k % experts or f["data.seq_len"] % unit:
            f["data.seq_len"] += 1
