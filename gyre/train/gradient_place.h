#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>

#include "gyre/net/window.h"

namespace gyre::train {

/// A tensor without memory (on the meta device) that has the shape, type and strides of the parameter's gradient in an
/// exchange: the parameter's own strides where its elements lie densely, in whatever order (channels last).
at::Tensor gradient_layout(const at::Tensor& parameter);

/// The memory of one parameter's gradient in an exchange, which other processes change in every step. Not thread-safe.
class GradientPlace {
 public:
  /// `memory` lies in one segment, and has the size of `parameter`. Error(kResourceExhausted): see net::Window.
  GradientPlace(std::span<std::byte> memory, const at::Tensor& parameter);

  /// A view of the memory in the parameter's shape and layout. free() replaces it if it is still referenced.
  const at::Tensor& tensor() const { return tensor_; }

  /// Prepares the memory for a new gradient: tensors that still refer to the last one, such as views and detached
  /// tensors, keep its values in memory of their own. Not needed before accumulation into tensor().
  /// Error(kResourceExhausted).
  void free();

 private:
  std::span<std::byte> memory_;
  at::Tensor layout_;
  std::shared_ptr<net::Window> window_;
  at::Tensor tensor_;
};

}  // namespace gyre::train
