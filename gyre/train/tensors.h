#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/train/checkpoint.h"

namespace gyre::train {

/// A tensor with the name that it has in messages, checkpoints and on the wire. Copies share the tensor.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

/// The parameters of a torch::nn::Module by their names, in the order in which they were registered.
template <typename Module>
NamedTensors named_parameters(const Module& module) {
  NamedTensors parameters;
  for (const auto& item : module.named_parameters()) parameters.push_back({item.key(), item.value()});
  return parameters;
}

/// Its buffers: the running means of batch normalisation, say.
template <typename Module>
NamedTensors named_buffers(const Module& module) {
  NamedTensors buffers;
  for (const auto& item : module.named_buffers()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

/// The parameters, and then the buffers.
template <typename Module>
NamedTensors named_tensors(const Module& module) {
  NamedTensors tensors = named_parameters(module);
  for (NamedTensor& buffer : named_buffers(module)) tensors.push_back(std::move(buffer));
  return tensors;
}

/// XXH3 over names, types, shapes and bytes, in order: equal replicas have equal hashes.
std::uint64_t hash_tensors(const NamedTensors& tensors);

/// The memory of contiguous float32 tensors on the CPU. Error(kUnsupported) for another one.
std::vector<std::span<float>> values_of(const NamedTensors& tensors);

/// Adds views of the tensors' memory; the tensors must be contiguous on the CPU and outlive the checkpoint's use.
void add_to_checkpoint(Checkpoint& checkpoint, const NamedTensors& tensors);

/// Copies each tensor's values out of the checkpoint. Error(kMismatch) shows both sides when type or shape differ.
void restore_from_checkpoint(const Checkpoint& checkpoint, const NamedTensors& tensors);

}  // namespace gyre::train
