#include "gyre/train/gradient_place.h"

#include <ATen/ATen.h>

namespace gyre::train {
namespace {

at::Tensor view_of(const std::shared_ptr<net::Window>& window, const at::Tensor& layout) {
  return at::from_blob(
      window->bytes().data(), layout.sizes(), layout.strides(), [window](void* /*memory*/) {},
      layout.options().device(at::kCPU).requires_grad(false));
}

}  // namespace

at::Tensor gradient_layout(const at::Tensor& parameter) {
  return at::empty_like(parameter.detach(), parameter.options().device(at::kMeta).requires_grad(false));
}

GradientPlace::GradientPlace(std::span<std::byte> memory, const at::Tensor& parameter)
    : memory_(memory),
      layout_(gradient_layout(parameter)),
      window_(net::Window::over(memory)),
      tensor_(view_of(window_, layout_)) {}

void GradientPlace::free() {
  // What shares the gradient's memory holds the tensor (a DLPack capsule) or its storage (a view).
  if (tensor_.use_count() == 1 && tensor_.storage().use_count() == 1) return;
  window_->keep_values();
  window_ = net::Window::over(memory_);
  tensor_ = view_of(window_, layout_);
}

}  // namespace gyre::train
