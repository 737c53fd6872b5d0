// Sparse tensors of the device, which an embedding's gradient is: indices and values are tensors of the device, and
// what is computed of them runs on the host, which waits for them. No test looks for a missing wait in there.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "tests/device/device.h"

namespace at::native {
// Not in a public header, and exported by libtorch_cpu all the same.
Tensor new_with_dims_sparse(int64_t sparse, int64_t dense, IntArrayRef size, std::optional<ScalarType> type,
                            std::optional<Layout> layout, std::optional<Device> device, std::optional<bool> pinned);
Tensor new_with_dims_and_tensor_sparse_symint(int64_t sparse, int64_t dense, c10::SymIntArrayRef size,
                                              const Tensor& indices, const Tensor& values,
                                              std::optional<ScalarType> type, std::optional<Layout> layout,
                                              std::optional<Device> device, std::optional<bool> pinned,
                                              std::optional<bool> coalesced);
Tensor empty_sparse_symint(c10::SymIntArrayRef size, std::optional<ScalarType> type, std::optional<Layout> layout,
                           std::optional<Device> device, std::optional<bool> pinned,
                           std::optional<MemoryFormat> format);
Tensor _indices_sparse(const Tensor& self);
Tensor _values_sparse(const Tensor& self);
Tensor indices_sparse(const Tensor& self);
Tensor values_sparse(const Tensor& self);
int64_t _nnz_sparse(const Tensor& self);
int64_t sparse_dim_sparse(const Tensor& self);
int64_t dense_dim_sparse(const Tensor& self);
bool is_coalesced_sparse(const Tensor& self);
Tensor& _coalesced_sparse_(Tensor& self, bool coalesced);
}  // namespace at::native

namespace gyre::test_device {
namespace {

at::Tensor on_host(const at::Tensor& tensor) {
  if (!on_device(tensor)) return tensor;
  if (!tensor.is_sparse()) return tensor.cpu();
  return at::_sparse_coo_tensor_unsafe(tensor._indices().cpu(), tensor._values().cpu(), tensor.sizes(),
                                       tensor.options().device(at::kCPU), tensor.is_coalesced());
}

at::Tensor to_device(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.is_sparse()) return tensor.to(device);
  return at::_sparse_coo_tensor_unsafe(tensor._indices().to(device), tensor._values().to(device), tensor.sizes(),
                                       tensor.options().device(device), tensor.is_coalesced());
}

// torch's functions make a sparse tensor on the current device.
// NOLINTBEGIN(performance-unnecessary-value-param)

at::Tensor with_dims(int64_t sparse, int64_t dense, at::IntArrayRef size, std::optional<at::ScalarType> type,
                     std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pinned) {
  const c10::OptionalDeviceGuard guard(device);
  return at::native::new_with_dims_sparse(sparse, dense, size, type, layout, device, pinned);
}

at::Tensor with_dims_and_tensors(int64_t sparse, int64_t dense, c10::SymIntArrayRef size, const at::Tensor& indices,
                                 const at::Tensor& values, std::optional<at::ScalarType> type,
                                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                                 std::optional<bool> pinned, std::optional<bool> coalesced) {
  const c10::DeviceGuard guard(values.device());
  return at::native::new_with_dims_and_tensor_sparse_symint(sparse, dense, size, indices, values, type, layout, device,
                                                            pinned, coalesced);
}

at::Tensor empty_sparse(c10::SymIntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pinned,
                        std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::native::empty_sparse_symint(size, type, layout, device, pinned, format);
}

// NOLINTEND(performance-unnecessary-value-param)

/// Runs an operator on the host. What it writes into goes back.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  std::optional<c10::Device> device;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // A tensor of the device, and the host's in its place.
  torch::jit::Stack values;
  for (size_t i = 0; i < count; ++i) {
    if (arguments[i].isDevice()) {
      values.emplace_back(c10::Device(at::kCPU));
      continue;
    }
    if (!arguments[i].isTensor() || !on_device(arguments[i].toTensor())) {
      values.push_back(arguments[i]);
      continue;
    }
    const at::Tensor& tensor = arguments[i].toTensor();
    device = tensor.device();
    values.emplace_back(on_host(tensor));
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      TORCH_CHECK(!tensor.is_sparse(), "sim: ", schema.operator_name(), " writes into a sparse tensor");
      written.emplace_back(tensor, values.back().toTensor());
    }
  }
  op.callBoxed(&values);
  for (const auto& [target, result] : written) target.copy_(result);
  for (const c10::IValue& value : values) {
    if (!value.isTensor() || !device) {
      stack->push_back(value);
      continue;
    }
    const auto own = std::find_if(written.begin(), written.end(),
                                  [&](const auto& one) { return one.second.is_same(value.toTensor()); });
    stack->emplace_back(own != written.end() ? own->first : to_device(value.toTensor(), *device));
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  library.impl("_sparse_coo_tensor_with_dims", with_dims);
  library.impl("_sparse_coo_tensor_with_dims_and_tensors", with_dims_and_tensors);
  library.impl("empty.memory_format", empty_sparse);
  library.impl("_indices", at::native::_indices_sparse);
  library.impl("_values", at::native::_values_sparse);
  library.impl("indices", at::native::indices_sparse);
  library.impl("values", at::native::values_sparse);
  library.impl("_nnz", at::native::_nnz_sparse);
  library.impl("sparse_dim", at::native::sparse_dim_sparse);
  library.impl("dense_dim", at::native::dense_dim_sparse);
  library.impl("is_coalesced", at::native::is_coalesced_sparse);
  library.impl("_coalesced_", at::native::_coalesced_sparse_);
}

}  // namespace gyre::test_device
