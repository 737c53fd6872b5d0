#include "python/gyre/core/checkpoint_binding.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gyre/train/checkpoint.h"

namespace gyre::python {
namespace {

using Metadata = std::map<std::string, std::string>;
/// Name, type, shape, the elements' bytes.
using Tensor = std::tuple<std::string, std::string, std::vector<std::int64_t>, nanobind::bytes>;

std::pair<Metadata, std::vector<Tensor>> read(const std::string& path) {
  train::Checkpoint checkpoint;
  {
    const nanobind::gil_scoped_release released;
    checkpoint = train::load_checkpoint(path);
  }
  std::vector<Tensor> tensors;
  for (const train::CheckpointTensor& tensor : checkpoint.tensors) {
    tensors.emplace_back(tensor.name, tensor.type, tensor.shape,
                         nanobind::bytes(tensor.bytes.data(), tensor.bytes.size()));
  }
  return {std::move(checkpoint.metadata), std::move(tensors)};
}

nanobind::bytes encode(Metadata metadata, const std::vector<Tensor>& tensors) {
  train::Checkpoint checkpoint;
  checkpoint.metadata = std::move(metadata);
  for (const auto& [name, type, shape, bytes] : tensors) {
    checkpoint.tensors.push_back({name, type, shape, std::as_bytes(std::span(bytes.c_str(), bytes.size()))});
  }
  const Bytes file = train::encode_checkpoint(checkpoint);
  return nanobind::bytes(file.data(), file.size());
}

}  // namespace

void bind_checkpoints(nanobind::module_& module) {
  module.def("read_checkpoint", &read, nanobind::arg("path"),
             "Metadata, and per tensor name, type, shape and bytes. Everything is verified first: CorruptDataError.");
  module.def("encode_checkpoint", &encode, nanobind::arg("metadata"), nanobind::arg("tensors"),
             "The bytes of a checkpoint, which is a safetensors file.");
}

}  // namespace gyre::python
