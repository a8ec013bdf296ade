// Gives tests in Python access to the checkpoint room, without libtorch and without a run.
//
//   checkpoint_tool list FILE.safetensors                     one JSON object: name → dtype, shape; and metadata
//   checkpoint_tool copy FILE.safetensors OUT.safetensors     every tensor's bytes through our reader and writer
//   checkpoint_tool copy-hf FOLDER OUT float32|bfloat16 MAX_SHARD_BYTES [TOKENIZER.json]
//                                                             a transformers folder through our import and export
//   checkpoint_tool reslice CHECKPOINT OUT                    the same tensors as odd slices: boxes cut along the last
//                                                             dim, each as two flat ranges
//   checkpoint_tool change CHECKPOINT OUT TENSOR ELEMENT VALUE
//                                                             the same checkpoint, whose ELEMENT (row-major) is VALUE,
//                                                             such as nan, with right hashes
//   checkpoint_tool throughput FOLDER MEGABYTES [THREADS]     GB/s of writing, verifying and loading a checkpoint
//   checkpoint_tool resume CHECKPOINT ROUNDS                  the seconds in which one rank reads all of it and
//   compares
//                                                             the hashes: in two passes (as versions before 2026-11-23
//                                                             did) and in one, in turns, from the disk each time
//   checkpoint_tool make-manifest FOLDER PIECES               a manifest of PIECES pieces, without their files
//   checkpoint_tool open CHECKPOINT                           the seconds and peak memory of opening it
//   checkpoint_tool configs           for each line of standard input, a config.json, one of output: {"refused":
//   message},
//                                     or {"model": its fields, "kept": what else is read, "told": what warnings name}
//   checkpoint_tool seal CHECKPOINT                           corrects the hash of a manifest that was edited

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/model_identity.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/testing/large_manifest.h"
#include "checkpoint/verified_load.h"
#include "checkpoint/writer.h"

namespace athanor {
namespace {

using Arguments = std::vector<std::string>;

void list(const Arguments& arguments) {
  const auto file = SafetensorsFile::open(arguments.at(0));
  nlohmann::json out{{"metadata", file.metadata()}, {"tensors", nlohmann::json::object()}};
  for (const auto& [name, entry] : file.tensors()) {
    out["tensors"][name] = {{"dtype", dtype_name(entry.dtype)}, {"shape", entry.shape}};
  }
  std::puts(out.dump().c_str());
}

// Writes each tensor as one or two boxes along its last dim, each box in two flat ranges.
void reslice(const Arguments& arguments) {
  const auto checkpoint = CheckpointReader::open(arguments.at(0));
  std::vector<std::vector<float>> values;
  std::vector<PieceView> pieces;
  for (const auto& [name, shape] : checkpoint.manifest().tensors) {
    const int64_t last = shape.back(), cut = (last + 1) / 2;
    for (const auto& [begin, end] : {std::pair{int64_t{0}, cut}, std::pair{cut, last}}) {
      Shape offset(shape.size(), 0), extent = shape;
      offset.back() = begin;
      extent.back() = end - begin;
      const Slice box = box_slice(shape, offset, extent);
      for (const auto& [first, behind] :
           {std::pair{int64_t{0}, box.flat_end / 3}, std::pair{box.flat_end / 3, box.flat_end}}) {
        Slice part = box;
        part.flat_begin = first;
        part.flat_end = behind;
        auto& data = values.emplace_back(static_cast<size_t>(part.num_elements()));
        checkpoint.load({{name, part, data.data()}});
        pieces.push_back({name, part, data.data()});
      }
    }
  }
  write_checkpoint(arguments.at(1), pieces, checkpoint.manifest().model, checkpoint.state());
}

void change(const Arguments& arguments) {
  const auto checkpoint = CheckpointReader::open(arguments.at(0));
  std::vector<std::vector<float>> values;
  std::vector<PieceView> pieces;
  for (const auto& [name, shape] : checkpoint.manifest().tensors) {
    auto& data = values.emplace_back(static_cast<size_t>(*num_elements(shape)));
    checkpoint.load({{name, whole_slice(shape), data.data()}});
    if (name == arguments.at(2)) data.at(std::stoull(arguments.at(3))) = std::stof(arguments.at(4));
    pieces.push_back({name, whole_slice(shape), data.data()});
  }
  write_checkpoint(arguments.at(1), pieces, checkpoint.manifest().model, checkpoint.state());
}

void copy(const Arguments& arguments) {
  const auto file = SafetensorsFile::open(arguments.at(0));
  std::vector<TensorSpec> specs;
  for (const auto& [name, entry] : file.tensors()) specs.push_back({name, entry.dtype, entry.shape});
  SafetensorsWriter writer(arguments.at(1), specs, file.metadata());
  for (const auto& spec : specs) {
    const auto bytes = file.data(spec.name);
    writer.append(bytes.data(), bytes.size());
  }
  writer.commit();
}

void copy_hf(const Arguments& arguments) {
  const auto folder = HfFolder::open(arguments.at(0));
  HfExportOptions options;
  options.dtype = arguments.at(2) == "bfloat16" ? Dtype::kBF16 : Dtype::kF32;
  options.max_shard_bytes = std::stoull(arguments.at(3));
  if (arguments.size() > 4) options.tokenizer = arguments[4];
  const ParameterReader reader = [&](const ParameterSpec& parameter, int64_t first, std::span<float> values) {
    folder.read(parameter.name, first, values);
  };
  export_hf_folder(arguments.at(1), folder.config(), reader, options);
}

template <class Action>
void timed(const char* what, double bytes, Action action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::printf("%-26s %7.2f s  %6.2f GB/s\n", what, elapsed.count(), bytes / elapsed.count() / 1e9);
}

void throughput(const Arguments& arguments) {
  const std::filesystem::path folder = arguments.at(0);
  const int64_t rows = std::stoll(arguments.at(1)) / 3 * 256;  // 1024 columns of 4 bytes, three tensors
  WriteOptions options;
  if (arguments.size() > 2) options.num_threads = std::stoi(arguments[2]);
  const Shape shape{rows, 1024};
  const std::vector<float> values(static_cast<size_t>(rows * 1024), 0.25F);
  std::vector<PieceView> pieces;
  for (const char* kind : {"master/w", "exp_avg/w", "exp_avg_sq/w"}) {
    pieces.push_back({kind, whole_slice(shape), values.data()});
  }
  const auto bytes = static_cast<double>(total_bytes(pieces));
  timed("write", bytes, [&] { write_checkpoint(folder, pieces, {}, {}, options); });
  const auto reader = CheckpointReader::open(folder);
  timed("verify", bytes, [&] { reader.verify(); });
  std::vector<float> read(values.size());
  timed("load", bytes, [&] {
    for (const auto& piece : pieces) reader.load({{piece.tensor, piece.slice, read.data()}});
  });
}

// The pages that are in memory would hide what the disk takes.
void drop_pages(const CheckpointReader& checkpoint) {
  for (const auto& [name, size] : checkpoint.manifest().files) {
    const int file = ::open((checkpoint.folder() / name).c_str(), O_RDONLY);
    if (file < 0 || ::fdatasync(file) != 0 || ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0)
      fail_errno("cannot drop the pages of", name);
    ::close(file);
  }
}

void resume(const Arguments& arguments) {
  std::vector<std::vector<float>> memory;
  std::vector<TargetView> targets;
  double bytes = 0;
  const auto reader = CheckpointReader::open(arguments.at(0));
  for (const auto& [name, shape] : reader.manifest().tensors) {
    memory.emplace_back(static_cast<size_t>(*num_elements(shape)), 1.0F);
    targets.push_back({name, whole_slice(shape), memory.back().data()});
    bytes += static_cast<double>(memory.back().size() * sizeof(float));
  }
  const auto two_passes = [&](bool drop_between) {
    const auto checkpoint = CheckpointReader::open(arguments[0]);
    checkpoint.verify();
    if (drop_between) drop_pages(reader);
    checkpoint.load(targets);
  };
  std::array<int, 3> order{0, 1, 2};
  for (int round = 0; round < std::stoi(arguments.at(1)); ++round, std::ranges::next_permutation(order)) {
    for (const int which : order) {  // what came before may slow down the disk
      drop_pages(reader);
      switch (which) {
        case 0: timed("two passes", bytes, [&] { two_passes(false); }); break;
        case 1: timed("two passes, both from disk", bytes, [&] { two_passes(true); }); break;
        default: timed("one pass", bytes, [&] { load_verified(CheckpointReader::open(arguments[0]), targets); });
      }
    }
  }
}

// The two commands that measure manifests (docs/checkpoints.md): one process makes a folder, another reads it.
void make_manifest(const Arguments& arguments) {
  std::filesystem::create_directories(arguments.at(0));
  const Manifest manifest = large_manifest(std::stoll(arguments.at(1)));
  const auto start = std::chrono::steady_clock::now();
  const std::string text = manifest_text(manifest);
  const std::chrono::duration<double> written = std::chrono::steady_clock::now() - start;
  check_manifest(text, "it");
  const std::chrono::duration<double> checked = std::chrono::steady_clock::now() - start;
  write_file_atomically(std::filesystem::path(arguments[0]) / kManifestName, text);
  std::printf("text of %.0f MB: %.2f s, checked in %.2f s\n", static_cast<double>(text.size()) / 1e6, written.count(),
              (checked - written).count());
}

void open_manifest(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const auto reader = CheckpointReader::open(arguments.at(0));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("%zu pieces: %.2f s, of which computing %.2f s, peak %.0f MB\n", reader.manifest().pieces.size(),
              elapsed.count(), static_cast<double>(std::clock()) / CLOCKS_PER_SEC,
              static_cast<double>(usage.ru_maxrss) / 1e3);
}

void seal(const Arguments& arguments) {
  const auto file = std::filesystem::path(arguments.at(0)) / kManifestName;
  const std::string text = read_file(file), body = text.substr(text.find('\n') + 1);
  write_file_atomically(file, "{\"hash\": \"" + hash_hex(body) + "\",\n" + body);
}

void configs() {
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json out;
    try {
      const HfConfig config = parse_hf_config(line, "config.json");
      out["model"] = model_identity(config.model);
      out["kept"] = {config.model.initializer_range,   config.model.max_position_embeddings,
                     config.router_aux_loss_coef,      config.bos_token_id.value_or(-1),
                     config.pad_token_id.value_or(-1), config.eos_token_ids,
                     config.upcasts_attention};
      for (const auto& [key, rate] : config.dropouts) out["told"].push_back(key);
      for (const std::string& member : config.unknown_members) out["told"].push_back(member);
    } catch (const Error& error) {
      out = {{"refused", error.what()}};
    }
    std::puts(out.dump().c_str());
  }
}

int run(const std::string& command, const Arguments& arguments) {
  if (command == "list") return list(arguments), 0;
  if (command == "change") return change(arguments), 0;
  if (command == "copy") return copy(arguments), 0;
  if (command == "copy-hf") return copy_hf(arguments), 0;
  if (command == "reslice") return reslice(arguments), 0;
  if (command == "throughput") return throughput(arguments), 0;
  if (command == "resume") return resume(arguments), 0;
  if (command == "make-manifest") return make_manifest(arguments), 0;
  if (command == "open") return open_manifest(arguments), 0;
  if (command == "configs") return configs(), 0;
  if (command == "seal") return seal(arguments), 0;
  std::fprintf(stderr, "unknown command %s\n", command.c_str());
  return 2;
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  try {
    if (argc < 2) return 2;
    return athanor::run(argv[1], {argv + 2, argv + argc});
  } catch (const athanor::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
