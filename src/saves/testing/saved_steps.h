#pragma once
// A run's folder with models and full checkpoints that are there and hold nothing.

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/folder_test.h"
#include "config/run_config.h"

namespace athanor::inline saves {

class SavedSteps : public FolderTest {
 protected:
  std::filesystem::path events() const { return folder_ / "events.jsonl"; }
  RunConfig config(const std::string& resume = "auto") const {
    RunConfig c;
    c.train.run_dir = folder_.string();
    c.checkpoint.resume = resume;
    return c;
  }
  void add_full(int64_t step) const { add(fmt::format("checkpoints/step-{:08}/manifest.json", step)); }
  void add_model(int64_t step) const { add(fmt::format("models/step-{:08}/config.json", step)); }
  void add(const std::string& name) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << "{}";
  }
};

}  // namespace athanor::inline saves
