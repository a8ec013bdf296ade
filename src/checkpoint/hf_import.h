#pragma once
// Reads a `transformers` folder as our parameters: config.json and the weights of one or several safetensors files.

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arch/inventory.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/packed_fours.h"
#include "checkpoint/safetensors.h"

namespace athanor::inline checkpoint {

class HfFolder {
 public:
  /// Opens the folder and checks everything except the weights' values. Where config.json ties the output layer to the
  /// embedding, the stored tensors decide, as in transformers 5: an lm_head.weight with other values is an output layer
  /// of its own (both are read to compare them), and one without an embedding is both.
  /// @throws CheckpointError that names missing, unexpected and mis-shaped tensors together (many are cut off with "and
  /// N more"), or the damaged file.
  static HfFolder open(const std::filesystem::path& folder);

  const HfConfig& config() const { return config_; }
  const ModelConfig& model() const { return config_.model; }
  /// Returns every parameter, in the order of the inventory, experts stacked.
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }

  /// Reads elements [first, first + out.size()), row-major, of a logical parameter, converted to fp32 from the stored
  /// type. Thread-safe. @throws CheckpointError if the model has no such parameter.
  void read(const std::string& name, int64_t first, std::span<float> out) const;
  /// Reads the whole parameter; `out` has room for it.
  void read(const std::string& name, float* out) const;

 private:
  /// The tensors of packed experts, and the file that has their scales.
  struct PackedFile {
    const SafetensorsFile* scales;
    PackedFours tensors;
  };
  /// A part of a logical parameter, and the file that has its tensor.
  struct Segment {
    const SafetensorsFile* file;
    std::string tensor;  // its name in the file
    HfPart part;
    std::optional<BlockScales> scales = {};
    std::optional<PackedFile> packed = {};  // part is one of the unpacked tensor
  };
  /// Rows of a part that is stored transposed, of the last that were read: to read a row alone would be to read an
  /// element here and there all over the tensor.
  struct Slab {
    const Segment* of;
    int64_t first_row;
    std::vector<float> values;  // [rows, columns]
  };
  struct Slabs {
    std::mutex mutex;
    std::deque<std::shared_ptr<const Slab>> last;
  };
  struct Located {
    int64_t num_elements = 0;
    std::vector<Segment> segments;
  };

  struct Stored {
    const SafetensorsFile* file;
    std::string tensor;  // its name in the file
    bool used = false;
  };

  HfFolder() = default;
  void open_files(const std::filesystem::path& folder);
  void rename_parts();
  void add_prefix();
  void settle_output_layer();
  void locate_parameters(const std::string& where);
  /// Reads elements [first, first + out.size()) of a part's tensor.
  void read_tensor(const Segment& segment, int64_t first, std::span<float> out) const;
  /// Reads elements [first, first + out.size()) of a part.
  void read(const Segment& segment, int64_t first, std::span<float> out) const;
  std::shared_ptr<const Slab> slab(const Segment& segment, int64_t first_row, int64_t rows) const;
  /// Returns the factors of a tensor that needs them. Otherwise as claim().
  std::optional<BlockScales> claim_scales(const HfPart& part, const Stored& stored, std::vector<std::string>& problems);
  /// Reads the biases of routers, if the family's files have them.
  void read_router_bias(std::vector<std::string>& problems);
  Located locate(const ParameterSpec& parameter, std::vector<std::string>& problems);
  /// Returns where a parameter lies that is packed; nothing if it is not.
  std::optional<Located> locate_packed(const ParameterSpec& parameter, std::vector<std::string>& problems);
  /// Returns where the part's tensor is, and marks it as used; null, with a problem added, if it is missing or does not
  /// fit.
  /// @param only  the type that it must have; nothing: any that is widened to fp32.
  const Stored* claim(const HfPart& part, std::vector<std::string>& problems, std::optional<Dtype> only = {});

  HfConfig config_;
  std::vector<ParameterSpec> parameters_;
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, Stored> stored_;
  std::map<std::string, Located> located_;
  std::shared_ptr<Slabs> slabs_ = std::make_shared<Slabs>();
};

/// Returns true if the folder has a config.json; HfFolder::open may still refuse it.
bool is_hf_folder(const std::filesystem::path& folder);

/// Returns true if a run wrote the folder, or if a file in it has a name of weights of any format, of an index or of an
/// unfinished download. Such a folder is meant to hold weights, and HfFolder::open either reads them or throws.
bool has_weights(const std::filesystem::path& folder);

}  // namespace athanor::inline checkpoint
