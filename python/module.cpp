// The part of the Python module that is C++: experts with autograd, the tokenizer, and the loader of prepared data.

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "blocks/library/sparse_layer.h"
#include "dataset/loader.h"
#include "dataset/mixture.h"
#include "tokenizer/tokenizer.h"

namespace athanor {
namespace {

namespace py = pybind11;

/// Batches of a folder that `athanor prepare` wrote, in the order in which a run with this seed reads them.
class Batches {
 public:
  Batches(const std::string& folder, int64_t batch_size, const std::string& split, uint64_t seed, int threads)
      : mixture_({{folder, Dataset::open(folder, split)}}),
        loader_(mixture_, seed, mixture_.enter({}), batch_size, threads) {}

  /// Returns the next batch, int64 [batch_size, seq_len].
  torch::Tensor next() {
    const Batch batch = loader_.next();
    return torch::from_blob(const_cast<int32_t*>(batch.tokens.data()), {batch.num_sequences, batch.seq_len}, at::kInt)
        .to(at::kLong);
  }

 private:
  Mixture mixture_;
  Loader loader_;
};

std::vector<uint32_t> encode(const Tokenizer& tokenizer, const std::string& text) { return tokenizer.encode(text); }

std::string decode(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids, bool skip_special_tokens) {
  return tokenizer.decode(ids, skip_special_tokens);
}

}  // namespace
}  // namespace athanor

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace athanor;  // NOLINT: everything here is its
  namespace py = pybind11;
  m.attr("torch_version") = ATHANOR_TORCH_VERSION;
  m.def("expert_layer", &expert_layer, py::call_guard<py::gil_scoped_release>(), py::arg("x"), py::arg("weights"),
        py::arg("ids"), py::arg("gate_up"), py::arg("down"));
  py::class_<Tokenizer>(m, "Tokenizer", "A tokenizer.json, a SentencePiece model, or a folder with one of them.")
      .def(py::init([](const std::string& path) { return Tokenizer::load(path); }), py::arg("path"))
      .def("encode", &encode, py::call_guard<py::gil_scoped_release>(), py::arg("text"))
      .def("decode", &decode, py::call_guard<py::gil_scoped_release>(), py::arg("ids"),
           py::arg("skip_special_tokens") = false)
      .def_property_readonly("vocab_size", &Tokenizer::vocab_size)
      .def_property_readonly("eos_id", &Tokenizer::eos_id);
  py::class_<Batches>(m, "Loader", "Batches of a folder that `athanor prepare` wrote; an iterator without end.")
      .def(py::init<const std::string&, int64_t, const std::string&, uint64_t, int>(), py::arg("folder"),
           py::arg("batch_size"), py::arg("split") = "train", py::arg("seed") = 1, py::arg("threads") = 1)
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &Batches::next, py::call_guard<py::gil_scoped_release>());
}
