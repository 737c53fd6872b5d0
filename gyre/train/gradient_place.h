#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>

#include "gyre/net/window.h"

namespace gyre::train {

/// The memory of one parameter's gradient in an exchange, which other processes change in every step. Not thread-safe.
class GradientPlace {
 public:
  /// `memory` lies in one segment, and has the size of `parameter`. Error(kResourceExhausted): see net::Window.
  GradientPlace(std::span<std::byte> memory, const at::Tensor& parameter);

  /// Shaped like the parameter; a view of the memory until somebody keeps it, or a tensor that shares its memory,
  /// beyond the next free().
  const at::Tensor& tensor() const { return tensor_; }

  /// Before the memory is written, unless by accumulation into tensor(): tensors that somebody has kept of the last
  /// gradient keep its values, in memory of their own. Error(kResourceExhausted).
  void free();

 private:
  std::span<std::byte> memory_;
  std::shared_ptr<net::Window> window_;
  at::Tensor tensor_;
};

}  // namespace gyre::train
