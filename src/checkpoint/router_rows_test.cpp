#include "checkpoint/router_rows.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::router_rows_test {
namespace {

ModelConfig model() {
  ModelConfig m;
  m.num_hidden_layers = 2;
  m.num_experts = 3;
  m.num_experts_per_tok = 1;
  return m;
}

RouterRows read(const char* text) {
  return read_router_rows(nlohmann::json::parse(text), kRouterBias, model(), "manifest.json");
}

TEST(RouterRows, AreReadAsTheyWereWrittenAndMayBeAbsent) {
  EXPECT_TRUE(read("{}").empty());
  const RouterRows rows = {{0.1f, -2, 0}, {1e-30f, 0, 3}};
  EXPECT_EQ(read(nlohmann::json{{kRouterBias, rows}}.dump().c_str()), rows);
  EXPECT_TRUE(any_nonzero(rows));
  EXPECT_FALSE(any_nonzero({{0, 0}, {0, -0.0f}}));
}

TEST(RouterRows, AnythingButANumberForEachExpertOfEachLayerIsRefused) {
  for (const char* rows :
       {"[]", "[[1,2,3]]", "[[1,2,3],[1,2]]", "[[1,2,3],[1,2,3,4]]", "[[1,2,3],[1,2,\"x\"]]", "[[1,2,3],[1,2,null]]",
        "7", "{\"a\":1}", "[[1,2,3],[1,2,1e300]]", "[[1,2,3],[1,2,3],[1,2,3]]"}) {
    const auto message =
        message_of<CheckpointError>([&] { read((std::string(R"({"router_bias":)") + rows + "}").c_str()); });
    EXPECT_SAYS(message, "manifest.json: router_bias");
  }
}

}  // namespace
}  // namespace athanor::router_rows_test
