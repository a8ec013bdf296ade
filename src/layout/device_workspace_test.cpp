#include "layout/device_workspace.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "layout/memory.h"

namespace athanor::device_workspace_test {
namespace {

constexpr double kKiB = 1 << 10, kMiB = 1 << 20;

// Sets a variable of the environment, and removes it at the end.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(CublasWorkspace, HasTheSizeOfHopperUnlessTheVariableSaysOtherwise) {
  constexpr const char* kName = "CUBLAS_WORKSPACE_CONFIG";
  const auto with = [&](const char* value) {
    const Variable set(kName, value);
    return cublas_workspace_bytes();
  };
  ::unsetenv(kName);
  EXPECT_EQ(cublas_workspace_bytes(), 32 * kMiB);
  EXPECT_EQ(with(":4096:2:16:8"), 2 * 4096 * kKiB + 8 * 16 * kKiB);
  EXPECT_EQ(with(":4096:8"), 32 * kMiB);
  EXPECT_EQ(with(":16:8"), 128 * kKiB);
  EXPECT_EQ(with(":0:0"), 0);
  EXPECT_EQ(with("size:16:1,:4:2"), 24 * kKiB);  // what stands between two pairs is passed over
  for (const char* none : {"", "4096", ":4096", ":4096:", ":x:8", "::8"}) EXPECT_EQ(with(none), 32 * kMiB) << none;
}

// 2 sequences of 300 tokens: 384 each. 4 heads in 2 sequences leave 132 / 8 = 16.5 multiprocessors for each.
TEST(DeviceAttention, FlashTakesRowsOf128AndACopyOfTheGradientForEachBlockThatWouldBeFree) {
  AttentionCall call{.sequences = 2, .seq_len = 300, .heads = 4, .kv_heads = 4, .head_dim = 40};
  call.kernel = attention_kernel(call);
  ASSERT_EQ(call.kernel, AttentionKernel::kFlash);
  EXPECT_EQ(call.backward_bytes(), 4 * 4 * 768 + 17 * 4.0 * 4 * 768 * 64);
  EXPECT_EQ(call.logsumexp_bytes(), 4 * 4 * 600);
  call.head_dim = 136;  // in multiples of 64
  EXPECT_EQ(call.backward_bytes(), 4 * 4 * 768 + 17 * 4.0 * 4 * 768 * 192);
  call.heads = 128;  // more blocks than multiprocessors: one copy; 128 query heads of 4 key heads
  EXPECT_EQ(call.backward_bytes(), 4 * 128 * 768 + 4.0 * 128 * 768 * 192 + 2 * 2 * 600.0 * 128 * 136);
}

// 8 sequences of 512: room for 32 documents, and 33 in the table.
TEST(DeviceAttention, FlashTakesAnother128RowsForEachDocumentOfTheTables) {
  EXPECT_EQ(count_table_documents(8, 512), 33);
  EXPECT_EQ(count_table_documents(8, 32), 9);
  EXPECT_EQ(count_table_documents(1, 32), 1);
  AttentionCall call{.sequences = 8, .seq_len = 512, .heads = 16, .kv_heads = 16, .head_dim = 128, .documents = 33};
  call.kernel = attention_kernel(call);
  const double rows = 4096 + 128 * 33;
  EXPECT_EQ(call.backward_bytes(), 4 * 16 * rows + 4 * 16 * rows * 128);
}

// 2 sequences of 100 tokens: two tiles of 64 rows, or one of 128; each has 64 columns.
TEST(DeviceAttention, TheMemoryEfficientKernelTakesTilesForTheLongestDocumentInEach) {
  AttentionCall call{.sequences = 2, .seq_len = 100, .heads = 4, .kv_heads = 2, .head_dim = 48, .bf16 = false};
  call.kernel = attention_kernel(call);
  ASSERT_EQ(call.kernel, AttentionKernel::kEfficient);
  EXPECT_EQ(call.backward_bytes(), 4 * 200 * 4 + 2 * 4 * (2 * (16 + 4 * 64 * 64)));
  EXPECT_EQ(call.logsumexp_bytes(), 4 * 4 * 2 * 128);
  call.documents = 3;
  EXPECT_EQ(call.backward_bytes(), 4 * 200 * 4 + 3 * 4 * (2 * (16 + 4 * 64 * 64)));
  EXPECT_EQ(call.logsumexp_bytes(), 4 * 4 * 3 * 128);
  call.head_dim = 100;
  EXPECT_EQ(call.backward_bytes(), 4 * 200 * 4 + 3 * 4 * (2 * (16 + 4 * 128 * 64)));
}

// One sequence of 128 tokens fills its two tiles. The product from which the sums are formed has their size, and the
// sums exist twice then.
TEST(DeviceAttention, WhereTilesAreFullTheMemoryEfficientKernelTakesMostBeforeIt) {
  AttentionCall call{.sequences = 1, .seq_len = 128, .heads = 1, .kv_heads = 1, .head_dim = 128, .bf16 = false};
  call.kernel = attention_kernel(call);
  EXPECT_EQ(call.backward_bytes(), 4 * 128 * 128 + 2 * 4 * 128);
}

// Heads of 264 elements have five columns of tiles, and blocks for the gradients of 64 keys and values: 384 of each.
TEST(DeviceAttention, InBf16TheMemoryEfficientKernelTakesBlocksForKeysAndValuesToo) {
  AttentionCall capped{.sequences = 2, .seq_len = 100, .heads = 3, .head_dim = 64, .soft_cap = true};
  EXPECT_EQ(attention_kernel(capped), AttentionKernel::kOther);
  EXPECT_EQ(capped.mask_bytes(), 2 * 4 * 2 * 3 * 100 * 100 + 3 * 4 * 200 * 3 * 64);
  EXPECT_EQ(capped.backward_bytes(), 2 * 4 * 2 * 3 * 100 * 100);
  AttentionCall windowed{.seq_len = 100, .head_dim = 64, .window = 7, .bf16 = false};
  EXPECT_EQ(attention_kernel(windowed), AttentionKernel::kOther);
  EXPECT_EQ(windowed.mask_bytes(), 5 * 100 * 100);
  windowed.bf16 = true;
  windowed.kernel = attention_kernel(windowed);
  EXPECT_EQ(windowed.kernel, AttentionKernel::kFlash);
  EXPECT_EQ(windowed.mask_bytes(), 0);
  AttentionCall call{.sequences = 1, .seq_len = 128, .heads = 2, .kv_heads = 2, .head_dim = 264};
  call.kernel = attention_kernel(call);
  EXPECT_EQ(call.backward_bytes(), 4 * 128 * 2 + 2 * (5 * (16 + 4 * 128 * 64) + 4 * 2 * 64 * 384));
}

TEST(DeviceAttention, OtherHeadsAndManyDocumentsAreNotComputedByTheseKernels) {
  const auto kernel = [](double head_dim, bool bf16, double sequences = 1, double documents = 0) {
    return attention_kernel({.sequences = sequences, .head_dim = head_dim, .documents = documents, .bf16 = bf16});
  };
  EXPECT_EQ(kernel(256, true), AttentionKernel::kFlash);
  EXPECT_EQ(kernel(264, true), AttentionKernel::kEfficient);
  EXPECT_EQ(kernel(4, false), AttentionKernel::kEfficient);
  EXPECT_EQ(kernel(4, true), AttentionKernel::kOther);
  EXPECT_EQ(kernel(128, true, 65536), AttentionKernel::kOther);
  EXPECT_EQ(kernel(128, true, 1, 65536), AttentionKernel::kOther);
  EXPECT_EQ(AttentionCall{.seq_len = 64}.backward_bytes(), 0);
}

RunConfig dense(const char* dtype) {
  RunConfig config;
  config.model.family = "llama";
  config.model.hidden_size = 256;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 2;
  config.model.num_hidden_layers = 3;
  config.model.intermediate_size = 8;  // so that attention needs the most
  config.model.num_experts = 0;
  config.model.vocab_size = 32;
  config.train.dtype = dtype;
  config.train.micro_batch_size = config.train.global_batch_size = 2;
  return config;
}

MemoryNeed need_of(const RunConfig& config, Multiplier multiplier) {
  return estimate_train_memory(config, 300, Layout(config, 1), 0, multiplier);
}

// An XPU has the same activations without these kernels. Its backward has its peak in attention, too, where nothing is
// added up to the kernel.
TEST(DeviceMemoryNeed, HasWhatOneLayersAttentionTakesForAMoment) {
  RunConfig cuda = dense("bfloat16"), xpu = cuda;
  cuda.train.device = "cuda", xpu.train.device = "xpu";
  AttentionCall call{.sequences = 2, .seq_len = 300, .heads = 4, .kv_heads = 2, .head_dim = 64};
  call.kernel = AttentionKernel::kFlash;
  const MemoryNeed with = need_of(cuda, kDeviceMultiplier), without = need_of(xpu, kDeviceMultiplier);
  EXPECT_EQ(with.activation_bytes, without.activation_bytes);
  const double more = with.transient_bytes - without.transient_bytes;
  EXPECT_LE(more, call.backward_bytes());
  EXPECT_GT(more, 0.9 * call.backward_bytes());
  for (int layers : {1, 6}) {
    cuda.model.num_hidden_layers = xpu.model.num_hidden_layers = layers;
    EXPECT_NEAR(need_of(cuda, kDeviceMultiplier).transient_bytes - need_of(xpu, kDeviceMultiplier).transient_bytes,
                more, 1)
        << layers << " layers";
  }
}

// Queries, keys, values and output of a layer are kept in fp32 for each of four heads, where two heads have keys.
TEST(DeviceMemoryNeed, InFp32KeepsAKeyForEachQueryHead) {
  RunConfig cuda = dense("float32"), xpu = cuda;
  cuda.train.device = "cuda", xpu.train.device = "xpu";
  const double tokens = 600, layers = 3, column = tokens * 64 * 4;
  const double logsumexp = 4 * 4 * (2 * 320 - tokens);
  EXPECT_EQ(need_of(cuda, kDeviceMultiplier).activation_bytes - need_of(xpu, kDeviceMultiplier).activation_bytes,
            layers * (2 * (4 - 2) * column + logsumexp));
}

TEST(DeviceMemoryNeed, HasTwoWorkspacesOfCublasAndTwoMoreWithAGraphAndTheCpuHasNone) {
  RunConfig config = dense("bfloat16");
  config.train.device = "cuda";
  const auto bytes = [&](Multiplier multiplier) { return need_of(config, multiplier).workspace_bytes; };
  EXPECT_EQ(bytes({1}), 0);
  EXPECT_EQ(bytes(kDeviceMultiplier), 2 * 32 * kMiB);
  const double total = need_of(config, kDeviceMultiplier).total();
  {
    const Variable set("CUBLAS_WORKSPACE_CONFIG", ":16:8");
    EXPECT_EQ(bytes(kDeviceMultiplier), 2 * 128 * kKiB);
    EXPECT_EQ(total - need_of(config, kDeviceMultiplier).total(), 64 * kMiB - 256 * kKiB);
  }
  config.train.cuda_graphs = true;
  EXPECT_EQ(bytes(kDeviceMultiplier), 4 * 32 * kMiB);
  config.train.device = "xpu";
  EXPECT_EQ(bytes(kDeviceMultiplier), 0);
  config.train.device = "cuda";
  config.train.global_batch_size = 4;
  config.parallelism.data_parallel_shard_degree = 2;  // several ranks record none
  EXPECT_EQ(estimate_train_memory(config, 300, Layout(config, 2), 0, kDeviceMultiplier).workspace_bytes, 64 * kMiB);
}

TEST(DeviceMemoryNeed, OfTheCpuDoesNotKnowTheKernels) {
  RunConfig instance = dense("float32"), document = instance;
  document.data.attention_scope = "document";
  EXPECT_EQ(need_of(instance, {1}).total(), need_of(document, {1}).total());
  const Variable set("CUBLAS_WORKSPACE_CONFIG", ":16:8");
  EXPECT_EQ(need_of(instance, {1}).total(), need_of(document, {1}).total());
}

}  // namespace
}  // namespace athanor::device_workspace_test
