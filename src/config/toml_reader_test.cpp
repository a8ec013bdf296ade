#include "config/toml_reader.h"

#include <gtest/gtest.h>

#include <chrono>

#include "config/dump.h"
#include "config/testing/error_of.h"

namespace athanor::toml_reader_test {
namespace {

constexpr const char* kTiny = R"([model]
family = "olmoe"
num_experts = 16
num_experts_per_tok = 4

[optimizer]
lr = 1
betas = [0.9, 0.95]
)";

std::string times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(TomlReader, ReadsWhatIsThereAndKeepsDefaultsElsewhere) {
  const auto config = parse_run_config(kTiny, "run.toml");
  EXPECT_EQ(config.model.num_experts, 16);
  EXPECT_EQ(config.optimizer.lr, 1.0);  // an integer where a number is expected
  EXPECT_EQ(config.optimizer.betas, (std::vector<double>{0.9, 0.95}));
  EXPECT_EQ(config.model.hidden_size, ModelConfig{}.hidden_size);
}

TEST(TomlReader, AnEmptyConfigurationIsTheDefaultsThatArePrinted) {
  const auto config = parse_run_config("", "empty.toml");
  EXPECT_EQ(config.model.num_experts, 16);
  EXPECT_EQ(config.model.num_experts_per_tok, 4);
  EXPECT_EQ(parse_run_config("[model]\nhidden_size = 512\n", "wide.toml").model.num_experts, 16);
  EXPECT_EQ(parse_run_config("[model]\nfamily = \"olmo\"\n", "dense.toml").model.num_experts, 0);
  EXPECT_EQ(parse_run_config("[model]\nfamily = \"olmoe\"\n", "sparse.toml").model.num_experts, 16);
}

TEST(TomlReader, WhatIsWrittenBesideModelFromIsKnown) {
  const auto config = parse_run_config("[model]\nfrom = \"x\"\nrope_theta = 5.0\n[model.rope_scaling]\nfactor = 2.0\n",
                                       "from.toml", {"model.vocab_size=9"});
  EXPECT_EQ(config.model.written.keys, (std::vector<std::string>{"rope_scaling.factor", "rope_theta", "vocab_size"}));
  EXPECT_TRUE(parse_run_config(kTiny, "run.toml").model.written.keys.empty());
}

TEST(TomlReader, OverridesWinAndNeedNoQuotes) {
  const auto config = parse_run_config(kTiny, "run.toml",
                                       {"optimizer.lr=2e-3", "data.path=some/folder", "train.steps=7",
                                        "parallelism.recompute=[\"norm\"]", "optimizer.warmup_steps=0"});
  EXPECT_EQ(config.optimizer.lr, 2e-3);
  EXPECT_EQ(config.data.path, "some/folder");
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.parallelism.recompute, std::vector<std::string>{"norm"});
}

TEST(TomlReader, AWholeNumberMayBeWrittenAsReadersWriteIt) {
  const auto config = parse_run_config(
      kTiny, "run.toml",
      {"train.steps=1e3", "train.seed=10_000", "checkpoint.interval=2e2", "parallelism.pipeline_split=[2.0, 2]"});
  EXPECT_EQ(config.train.steps, 1000);
  EXPECT_EQ(config.train.seed, 10'000);
  EXPECT_EQ(config.checkpoint.interval, CountOrAuto(200));
  EXPECT_EQ(config.parallelism.pipeline_split, (std::vector<int64_t>{2, 2}));
  for (const char* steps : {"1.5", "1e-3", "1e30", "inf", "nan"})
    EXPECT_NE(error_of(kTiny, {std::string("train.steps=") + steps}).find("expected an integer"), std::string::npos)
        << steps;
}

TEST(TomlReader, AnErrorAboutAListShowsHowOneIsWritten) {
  EXPECT_NE(error_of(kTiny, {"parallelism.recompute=attention"})
                .find("expected a list of norm, attention, moe, layer, written [\"norm\", \"attention\"], got"),
            std::string::npos);
  EXPECT_NE(error_of(kTiny, {"model.mlp_only_layers=3"}).find("a list of integers, written [1, 2]"), std::string::npos);
  EXPECT_NE(error_of(kTiny, {"eval.tasks=arc_easy"}).find("written [\"one\", \"two\"]"), std::string::npos);
}

TEST(TomlReader, AListOfTablesHasABoundedNumberOfEntries) {
  const auto stages = [](int count) { return "[train]\n" + times(count, "[[train.stages]]\nsteps = 1\n"); };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of(stages(1024)), "");
  EXPECT_NE(error_of(stages(20'000)).find("train.stages: 20000 entries, more than the 1024 that a list may have"),
            std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // minutes in quadratic time
}

TEST(TomlReader, EveryMistakeIsNamedAtOnceWithItsLine) {
  const std::string error =
      error_of("[model]\nhiden_size = 3\nnum_experts = \"many\"\n[trian]\nsteps = 1\n[train]\nsteps = 0\n");
  EXPECT_NE(error.find("run.toml:2:14: unknown key model.hiden_size (did you mean \"hidden_size\"?)"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("run.toml:3:15: model.num_experts: expected an integer from 0 to 131072, got"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("unknown key trian (did you mean \"train\"?)"), std::string::npos) << error;
  EXPECT_NE(error.find("run.toml:7:9: train.steps: expected an integer from 1 to 1099511627776, got 0"),
            std::string::npos)
      << error;
}

TEST(TomlReader, AValueIsShownOnOneLine) {
  EXPECT_EQ(error_of(kTiny, {"optimizer.betas=[nan, 0.9]"}),
            "--set optimizer.betas=[nan, 0.9]: optimizer.betas: expected two numbers from 0 to 0.9999999, since closer "
            "to 1 they are 1 in fp32, got [nan, 0.9]");
  for (const char* value : {"[[1, nan], [\"a\"]]", "{a = [nan, nan]}", "\"\"\"a\nb\"\"\""}) {
    const std::string error = error_of(kTiny, {std::string("optimizer.betas=") + value});
    EXPECT_EQ(error.find('\n', error.find("expected")), std::string::npos) << error;
  }
}

TEST(TomlReader, AnUnknownOverrideNamesItself) {
  EXPECT_NE(error_of(kTiny, {"optimizer.lrr=3"}).find("--set optimizer.lrr=3: unknown key optimizer.lrr"),
            std::string::npos);
  EXPECT_NE(error_of(kTiny, {"nonsense"}).find("expected table.key=value"), std::string::npos);
}

TEST(TomlReader, BrokenTomlIsNamedByLineAndColumn) {
  EXPECT_NE(error_of("[model\nx = 1").find("run.toml:1:"), std::string::npos);
}

TEST(TomlReader, NoValueLiesDeeperThanABound) {
  const std::string deep = "tables and lists lie deeper than 64 levels";
  for (const std::string& text :
       {times(100'000, "a.") + "b = 1", "[" + times(100'000, "a.") + "b]\n", "x = " + times(100'000, "["),
        "x = " + times(100'000, "{a="), "x = " + times(40, "{a.a=") + "1", "\"#\\\"\"" + times(100, ".a")}) {
    EXPECT_NE(error_of(text).find("run.toml:1:"), std::string::npos) << text.substr(0, 20);
    EXPECT_NE(error_of(text).find(deep), std::string::npos) << text.substr(0, 20);
  }
  EXPECT_NE(error_of("", {times(100'000, "a.") + "b=1"}).find(deep), std::string::npos);
  // Dots and brackets of texts, comments and numbers are none.
  const std::string dots = times(100, ".["), line = "train.run_dir = ";
  for (const std::string& text :
       {line + "'" + dots + "'", line + "\"\\\"" + dots + "\"", line + "'''\n'" + dots + "'''",
        line + "\"\"\"\n\\\"\"\"" + dots + "\"\"\"", "# " + dots + "\n" + line + "'r'",
        "data.sources = [" + times(100, "{path = 'a', weight = 1.5},") + "]"}) {
    EXPECT_EQ(error_of(text).find(deep), std::string::npos) << text;
  }
}

TEST(TomlReader, ManyUnknownKeysAreCounted) {
  std::string text = "[train]\n";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("stps{} = 1\n", i);
  const auto start = std::chrono::steady_clock::now();
  const std::string error = error_of(text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // 21 s with a hint for each
  EXPECT_NE(error.find("unknown key train.stps0 (did you mean \"steps\"?)"), std::string::npos) << error.substr(0, 200);
  EXPECT_NE(error.find("199950 more unknown keys in train."), std::string::npos);
}

TEST(TomlReader, ImpossibleShapesAreRefusedWithNumbers) {
  const std::string error =
      error_of(kTiny, {"model.hidden_size=100", "model.num_attention_heads=12", "train.micro_batch_size=5"});
  EXPECT_NE(error.find("model.num_attention_heads (12) must divide model.hidden_size (100)"), std::string::npos)
      << error;
  EXPECT_NE(error.find("train.micro_batch_size (5) must divide train.global_batch_size (16)"), std::string::npos)
      << error;
  EXPECT_NE(error_of(kTiny, {"model.num_experts_per_tok=17"}).find("between 1 and model.num_experts (16)"),
            std::string::npos);
}

TEST(TomlReader, ABf16MasterIsRefusedWithTheReason) {
  EXPECT_NE(error_of(kTiny, {"train.master_dtype=bfloat16"}).find("loses every update below 1/256"), std::string::npos);
}

TEST(TomlReader, ShortNamesOfTypesAreTakenAndTheLongOnesKept) {
  const auto config = parse_run_config(
      kTiny, "run.toml",
      {"train.dtype=fp32", "train.reduce_dtype=bf16", "checkpoint.model_dtype=fp32", "train.master_dtype=fp32"});
  EXPECT_EQ(config.train.dtype, "float32");
  EXPECT_EQ(config.train.reduce_dtype, "bfloat16");
  EXPECT_EQ(config.checkpoint.model_dtype, "float32");
  EXPECT_EQ(config.train.master_dtype, "float32");
  EXPECT_NE(error_of(kTiny, {"train.dtype=fp16"}).find("expected one of bfloat16, float32, auto; bf16 and fp32 are"),
            std::string::npos);
  EXPECT_NE(error_of(kTiny, {"train.reduce_dtype=auto"}), "");
}

TEST(Dump, ReadsBackAsTheSameConfiguration) {
  auto config =
      parse_run_config(kTiny, "run.toml", {"data.path=a \"b\" \\c", "optimizer.lr=0.1", "optimizer.eps=1e-30"});
  const std::string dumped = dump_run_config(config);
  EXPECT_EQ(dump_run_config(parse_run_config(dumped, "dumped")), dumped);
  EXPECT_NE(dumped.find("# learning rate after warm-up\nlr = 0.1\n"), std::string::npos) << dumped;
}

TEST(Dump, EveryFieldHasAMeaning) {
  const std::string dumped = dump_run_config(RunConfig{});
  for (const auto& key : run_config_keys()) {
    const std::string name = key.substr(key.rfind('.') + 1);
    EXPECT_NE(dumped.find("\n" + name + " = "), std::string::npos) << key;
  }
  EXPECT_EQ(dumped.find("# \n"), std::string::npos);
}

}  // namespace
}  // namespace athanor::toml_reader_test
