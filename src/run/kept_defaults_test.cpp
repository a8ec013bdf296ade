#include "run/kept_defaults.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace athanor::kept_defaults_test {
namespace {

namespace fs = std::filesystem;

class KeptType : public testing::Test {
 protected:
  ~KeptType() override { fs::remove_all(root_); }

  RunConfig config(const std::string& dtype) const {
    RunConfig config;
    config.train.run_dir = (root_ / "run").string();
    config.train.dtype = dtype;
    config.train.dtype_was_auto = true;
    return config;
  }
  // Makes a run that has saved something in that type.
  void began_in(const std::string& dtype) const {
    fs::create_directories(root_ / "run" / "models" / "step-00000004");
    std::ofstream(root_ / "run" / "config.toml")
        << "[model]\nnum_experts = 16\nnum_experts_per_tok = 4\n[train]\ndtype = \"" << dtype << "\"\n";
  }
  // Acts as rank 1 of two, whose first rank sends each of these messages in turn.
  static Team second_of_two(std::vector<std::string> said) {
    return {.index = 1, .size = 2, .broadcast = [said = std::move(said), next = size_t{0}](const std::string&) mutable {
              return next < said.size() ? said[next++] : "";
            }};
  }

  fs::path root_ = fs::path(testing::TempDir()) / ("athanor_kept_" + std::to_string(::getpid()));
};

TEST_F(KeptType, AFreshRunTakesThatOfTheCpu) {
  RunConfig fresh = config("float32");
  keep_dtype(fresh, {});
  EXPECT_EQ(fresh.train.dtype, "float32");
}

TEST_F(KeptType, ARunThatGoesOnKeepsItsOwnOnAnyCpu) {
  began_in("bfloat16");
  RunConfig again = config("float32");
  keep_dtype(again, {});
  EXPECT_EQ(again.train.dtype, "bfloat16");
}

TEST_F(KeptType, OneThatSomebodyNamedIsTaken) {
  began_in("bfloat16");
  RunConfig named = config("float32");
  named.train.dtype_was_auto = false;
  keep_dtype(named, {});
  EXPECT_EQ(named.train.dtype, "float32");
}

TEST_F(KeptType, TheFirstRanksCpuDecidesForAll) {
  RunConfig other = config("bfloat16");
  keep_dtype(other, second_of_two({"float32"}));
  EXPECT_EQ(other.train.dtype, "float32");
}

TEST_F(KeptType, AFileWithoutOneIsOfABeginningInBfloat16) {
  began_in("float32");
  std::ofstream(root_ / "run" / "config.toml")
      << "[model]\nfamily = \"olmo\"\n";  // written before the default was auto
  RunConfig again = config("float32");
  keep_dtype(again, {});
  EXPECT_EQ(again.train.dtype, "bfloat16");
}

TEST_F(KeptType, TheIntervalOfValidationIsKeptToo) {
  RunConfig now = config("float32");
  now.train.validation_interval = 250;
  keep_validation_interval(now, {});
  EXPECT_EQ(now.train.validation_interval, CountOrAuto(250)) << "a new run";
  began_in("float32");
  keep_validation_interval(now, {});
  EXPECT_EQ(now.train.validation_interval, CountOrAuto(0)) << "one of before it was derived";
  std::ofstream(root_ / "run" / "config.toml") << "[train]\nvalidation_interval = 40\n";
  keep_validation_interval(now, {});
  EXPECT_EQ(now.train.validation_interval, CountOrAuto(40));
}

}  // namespace
}  // namespace athanor::kept_defaults_test
