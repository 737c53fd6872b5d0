#include "gyre/train/gradient_place.h"

#include <ATen/ATen.h>

namespace gyre::train {
namespace {

at::Tensor view_of(const std::shared_ptr<net::Window>& window, at::IntArrayRef sizes,
                   const at::TensorOptions& options) {
  return at::from_blob(window->bytes().data(), sizes, [window](void* /*memory*/) {}, options.requires_grad(false));
}

}  // namespace

GradientPlace::GradientPlace(std::span<std::byte> memory, const at::Tensor& parameter)
    : memory_(memory),
      window_(net::Window::over(memory)),
      tensor_(view_of(window_, parameter.sizes(), parameter.options())) {}

void GradientPlace::free() {
  // What shares the gradient's memory holds the tensor (a DLPack capsule) or its storage (a view).
  if (tensor_.use_count() == 1 && tensor_.storage().use_count() == 1) return;
  window_->keep_values();
  window_ = net::Window::over(memory_);
  tensor_ = view_of(window_, tensor_.sizes(), tensor_.options());
}

}  // namespace gyre::train
