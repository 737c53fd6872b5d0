#include "gyre/train/tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::train {
namespace {

std::string type_name(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool: return "bool";
    case at::kByte: return "uint8";
    case at::kChar: return "int8";
    case at::kShort: return "int16";
    case at::kInt: return "int32";
    case at::kLong: return "int64";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    case at::kFloat: return "float32";
    case at::kDouble: return "float64";
    default:
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("tensors of type {} cannot be saved", c10::toString(tensor.scalar_type())));
  }
}

CheckpointTensor view_of(const NamedTensor& named) {
  const at::Tensor& tensor = named.tensor;
  GYRE_CHECK(tensor.is_contiguous());
  GYRE_CHECK(tensor.device().is_cpu());
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  return {named.name, type_name(tensor), tensor.sizes().vec(), {data, tensor.nbytes()}};
}

std::string describe(const CheckpointTensor& tensor) {
  return fmt::format("{} [{}]", tensor.type, fmt::join(tensor.shape, ", "));
}

}  // namespace

std::uint64_t hash_tensors(const NamedTensors& tensors) {
  std::uint64_t hash = 0;
  for (const NamedTensor& named : tensors) {
    const at::Tensor contiguous = named.tensor.detach().contiguous();
    const CheckpointTensor view = view_of({named.name, contiguous});
    hash = xxh3_64(as_bytes(view.name + " " + describe(view)), hash);
    hash = xxh3_64(view.bytes, hash);
  }
  return hash;
}

std::vector<std::span<float>> values_of(const NamedTensors& tensors) {
  std::vector<std::span<float>> values;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_cpu() || tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("'{}' must be a contiguous float32 tensor on the CPU; it is of type {}", name,
                              c10::toString(tensor.scalar_type())));
    }
    values.emplace_back(tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel()));
  }
  return values;
}

void add_to_checkpoint(Checkpoint& checkpoint, const NamedTensors& tensors) {
  for (const NamedTensor& named : tensors) checkpoint.tensors.push_back(view_of(named));
}

void restore_from_checkpoint(const Checkpoint& checkpoint, const NamedTensors& tensors) {
  for (const NamedTensor& named : tensors) {
    const CheckpointTensor here = view_of(named);
    const CheckpointTensor& saved = checkpoint.tensor(named.name);
    if (saved.type != here.type || saved.shape != here.shape) {
      throw Error(ErrorCode::kMismatch, fmt::format("tensor {} is {} in the checkpoint and {} in this network",
                                                    named.name, describe(saved), describe(here)));
    }
    if (!saved.bytes.empty()) {
      std::memcpy(named.tensor.mutable_data_ptr(), saved.bytes.data(), saved.bytes.size());
    }
  }
}

}  // namespace gyre::train
