#include "config/foreign_keys.h"

#include <algorithm>

namespace athanor {

const std::vector<std::pair<std::string_view, std::string_view>>& foreign_keys() {
  static const std::vector<std::pair<std::string_view, std::string_view>> all = {
      {"batch_size", "train.global_batch_size, the sequences in a step"},
      {"train_batch_size", "train.global_batch_size, the sequences in a step"},
      {"global_batch", "train.global_batch_size, the sequences in a step"},
      {"per_device_train_batch_size", "train.micro_batch_size"},
      {"micro_batch", "train.micro_batch_size"},
      {"train_micro_batch_size_per_gpu", "train.micro_batch_size"},
      {"gradient_accumulation_steps",
       "train.global_batch_size: the number of microbatches follows from it and train.micro_batch_size"},
      {"max_steps", "train.steps"},
      {"max_iters", "train.steps"},
      {"train_iters", "train.steps"},
      {"num_train_steps", "train.steps"},
      {"total_steps", "train.steps"},
      {"num_train_epochs", "train.steps: a run counts steps, and its log states the epochs"},
      {"lr", "optimizer.lr"},
      {"learning_rate", "optimizer.lr"},
      {"max_lr", "optimizer.lr"},
      {"min_lr", "optimizer.min_lr"},
      {"min_learning_rate", "optimizer.min_lr"},
      {"lr_scheduler", "optimizer.schedule"},
      {"lr_scheduler_type", "optimizer.schedule"},
      {"lr_decay_style", "optimizer.schedule"},
      {"warmup", "optimizer.warmup_steps"},
      {"warmup_iters", "optimizer.warmup_steps"},
      {"lr_warmup_iters", "optimizer.warmup_steps"},
      {"warmup_ratio", "optimizer.warmup_steps, a number of steps"},
      {"wd", "optimizer.weight_decay"},
      {"grad_clip", "optimizer.max_grad_norm"},
      {"clip_grad", "optimizer.max_grad_norm"},
      {"gradient_clipping", "optimizer.max_grad_norm"},
      {"adam_beta1", "optimizer.betas"},
      {"adam_beta2", "optimizer.betas"},
      {"beta1", "optimizer.betas"},
      {"beta2", "optimizer.betas"},
      {"adam_epsilon", "optimizer.eps"},
      {"bf16", "train.dtype"},
      {"fp16", "train.dtype"},
      {"precision", "train.dtype"},
      {"mixed_precision", "train.dtype"},
      {"output_dir", "train.run_dir"},
      {"out_dir", "train.run_dir"},
      {"save_dir", "train.run_dir"},
      {"save_steps", "checkpoint.interval"},
      {"save_interval", "checkpoint.interval"},
      {"save_total_limit", "checkpoint.keep"},
      {"resume_from_checkpoint", "checkpoint.resume"},
      {"eval_steps", "train.validation_interval"},
      {"eval_interval", "train.validation_interval"},
      {"logging_steps", "metrics.log_interval"},
      {"log_every", "metrics.log_interval"},
      {"log_interval", "metrics.log_interval"},
      {"seq_length", "data.seq_len"},
      {"max_seq_len", "data.seq_len"},
      {"max_seq_length", "data.seq_len"},
      {"block_size", "data.seq_len"},
      {"dataset", "data.path, a folder that `athanor prepare` wrote"},
      {"data_path", "data.path, a folder that `athanor prepare` wrote"},
      {"tokenizer", "an option of `athanor prepare`: data.path then has the tokenizer"},
      {"n_layer", "model.num_hidden_layers"},
      {"num_layers", "model.num_hidden_layers"},
      {"n_layers", "model.num_hidden_layers"},
      {"n_head", "model.num_attention_heads"},
      {"n_heads", "model.num_attention_heads"},
      {"n_embd", "model.hidden_size"},
      {"d_model", "model.hidden_size"},
      {"dim", "model.hidden_size"},
      {"ffn_hidden_size", "model.intermediate_size"},
      {"tensor_model_parallel_size", "parallelism.tensor_parallel_degree"},
      {"tp", "parallelism.tensor_parallel_degree"},
      {"pipeline_model_parallel_size", "parallelism.pipeline_parallel_degree"},
      {"pp", "parallelism.pipeline_parallel_degree"},
      {"expert_model_parallel_size", "parallelism.expert_parallel_degree"},
      {"ep", "parallelism.expert_parallel_degree"},
      {"gradient_checkpointing", "parallelism.recompute"},
      {"activation_checkpointing", "parallelism.recompute"},
      {"wandb", "metrics.tensorboard: a run writes TensorBoard events and metrics.jsonl, which wandb can import"},
  };
  return all;
}

std::string_view our_name_of(std::string_view key) {
  const auto found = std::ranges::find(foreign_keys(), key, [](const auto& pair) { return pair.first; });
  return found == foreign_keys().end() ? "" : found->second;
}

}  // namespace athanor
