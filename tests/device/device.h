// The test device as torch sees it (PrivateUse1, called "sim" in Python): what its parts share.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

#include "tests/device/world.h"

namespace gyre::test_device {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

World& world();

inline bool on_device(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }
inline StreamId id_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }

/// The calling thread's current stream of `device` (-1: of its current device).
StreamId current_stream(c10::DeviceIndex device);
/// Of its current device; other devices' memory belongs to their own current streams.
c10::Allocator& device_allocator();

/// Whether an address is in pinned host memory, which copies read and write when they run, not when they are queued.
bool is_pinned(const void* memory);
/// Says that what is queued on `stream` so far uses this pinned memory: the allocator keeps it until then.
void keep_pinned(const void* memory, StreamId stream);
/// Memory of the program's own, as cudaHostRegister takes it: pinned, and nobody keeps it.
void pin(const void* memory, size_t bytes);
void unpin(const void* memory);
/// Queues a step that never ends, and that nobody runs in passing.
void hang(StreamId stream);

/// A tensor as a kernel finds it: an address, not an owner.
struct Place {
  void* memory = nullptr;
  std::vector<int64_t> sizes, strides;
  c10::ScalarType type = c10::ScalarType::Undefined;
};

/// Of a tensor of the device, or in pinned memory.
Place place_of(const at::Tensor& tensor);
/// For kernels alone, while they run.
at::Tensor open(const Place& place);

}  // namespace gyre::test_device
