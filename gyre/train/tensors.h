#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/random.h"
#include "gyre/train/checkpoint.h"

namespace gyre::train {

/// A tensor with the name that it has in messages, checkpoints and on the wire. Copies share the tensor.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

/// XXH3 over names, types, shapes and bytes, in order: equal replicas have equal hashes.
std::uint64_t hash_tensors(const NamedTensors& tensors);

/// The memory of contiguous float32 tensors on the CPU. Error(kUnsupported) for another one.
std::vector<std::span<float>> values_of(const NamedTensors& tensors);

/// Fills with Glorot's uniform distribution: limit sqrt(6 / (fan_in + fan_out)), where the fans of a convolution's
/// [out, in, height, width] count its window and those of a matrix [out, in] are its sides. From our own generator, so
/// that every machine starts from the same bits. CPU, float32.
void glorot_uniform(const at::Tensor& weight, Random& random);

/// Adds views of the tensors' memory; the tensors must be contiguous on the CPU and outlive the checkpoint's use.
void add_to_checkpoint(Checkpoint& checkpoint, const NamedTensors& tensors);

/// Copies each tensor's values out of the checkpoint. Error(kMismatch) shows both sides when type or shape differ.
void restore_from_checkpoint(const Checkpoint& checkpoint, const NamedTensors& tensors);

}  // namespace gyre::train
