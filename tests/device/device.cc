// Memory, devices, streams and events: what torch calls the guard, the hooks and the allocators of a device.
#include "tests/device/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace gyre::test_device {
namespace {

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<int64_t, kDevices> current_streams{};

c10::DeviceIndex known_device(c10::DeviceIndex device) {
  if (device == -1) return current_device;
  TORCH_CHECK(device >= 0 && device < kDevices, "sim: invalid device ordinal ", static_cast<int>(device));
  return device;
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes > 0 ? world().allocate(current_device, bytes, current_stream(current_device)) : nullptr;
    return {memory, memory, &release, c10::Device(kType, current_device)};
  }
  static void release(void* memory) {
    if (memory != nullptr) world().release(memory);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    void* to = world().open(target);
    const void* from = world().open(source);
    world().enqueue(current_stream(static_cast<c10::DeviceIndex>(world().device_of(target))),
                    [=] { std::memcpy(to, from, bytes); });
  }
};

/// Host memory from which the device copies by itself. What a program frees is kept until the copies that use it have
/// run.
class PinnedMemory {
 public:
  void* allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    sweep();
    void* memory = nullptr;
    TORCH_CHECK(posix_memalign(&memory, 4096, std::max<size_t>(bytes, 1)) == 0, "sim: no pinned memory");
    blocks_[static_cast<const char*>(memory)] = {bytes, {}};
    return memory;
  }
  void release(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(static_cast<const char*>(memory));
    freed_.emplace_back(memory, std::move(block->second));
    blocks_.erase(block);
    sweep();
  }
  void pin(const void* memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[static_cast<const char*>(memory)] = {bytes, {}};
  }
  void unpin(const void* memory) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(static_cast<const char*>(memory));
  }
  bool holds(const void* memory) {
    const std::lock_guard lock(mutex_);
    return find(memory) != nullptr;
  }
  void keep(const void* memory, Position until) {
    const std::lock_guard lock(mutex_);
    if (Block* block = find(memory)) block->users.push_back(until);
  }

 private:
  struct Block {
    size_t bytes = 0;
    std::vector<Position> users;
  };

  Block* find(const void* memory) {
    const auto* address = static_cast<const char*>(memory);
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return nullptr;
    --after;
    return address < after->first + std::max<size_t>(after->second.bytes, 1) ? &after->second : nullptr;
  }

  void sweep() {
    std::erase_if(freed_, [](const auto& freed) {
      const auto& [memory, block] = freed;
      if (!std::ranges::all_of(block.users, [](const Position& user) { return world().reached(user); })) return false;
      std::memset(memory, 0xff, block.bytes);
      std::free(memory);
      return true;
    });
  }

  std::mutex mutex_;
  std::map<const char*, Block> blocks_;
  std::list<std::pair<void*, Block>> freed_;
};

PinnedMemory& pinned_memory() {
  static auto* memory = new PinnedMemory;
  return *memory;
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = pinned_memory().allocate(bytes);
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }
  static void release(void* memory) { pinned_memory().release(memory); }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, size_t bytes) const override { std::memcpy(target, source, bytes); }
};

/// A torch.Event: unrecorded until the first record().
struct Event {
  bool recorded = false;
  Position position;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(c10::Device device) const override { current_device = known_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  static c10::Stream stream(StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, static_cast<c10::DeviceIndex>(id.device)), id.number);
  }
  c10::Stream getStream(c10::Device device) const override { return stream(current_stream(device.index())); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream({known_device(device.index()), 0}); }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return stream(world().new_stream(known_device(device.index())));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    const c10::Stream before = getStream(to.device());
    current_streams[static_cast<size_t>(known_device(to.device_index()))] = to.id();
    return before;
  }
  bool queryStream(const c10::Stream& of) const override { return world().reached(world().position(id_of(of))); }
  void synchronizeStream(const c10::Stream& of) const override { world().wait_on_host(world().position(id_of(of))); }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    world().wait_on_host_for_device(known_device(device));
  }

  void record(void** event, const c10::Stream& at, c10::DeviceIndex device, c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(device == -1 || device == at.device_index(), "sim: an event of device ", static_cast<int>(device),
                " recorded on a stream of device ", static_cast<int>(at.device_index()));
    if (*event == nullptr) *event = std::make_unique<Event>().release();
    *static_cast<Event*>(*event) = {true, world().position(id_of(at))};
  }
  void block(void* event, const c10::Stream& waiter) const override {
    const auto* known = static_cast<const Event*>(event);
    if (known != nullptr && known->recorded) world().wait_on_stream(id_of(waiter), known->position);
  }
  bool queryEvent(void* event) const override {
    const auto* known = static_cast<const Event*>(event);
    return known == nullptr || !known->recorded || world().reached(known->position);
  }
  void synchronizeEvent(void* event) const override {
    const auto* known = static_cast<const Event*>(event);
    if (known != nullptr && known->recorded) world().wait_on_host(known->position);
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    const std::unique_ptr<Event> owned(static_cast<Event*>(event));
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& user) const override {
    world().record(memory.get(), id_of(user));
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current_device = known_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(current_device, known_device(device));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  /// Random numbers are the CPU's.
  at::Generator getNewGenerator(c10::DeviceIndex /*device*/) const override { return at::detail::createCPUGenerator(); }
  bool isPinnedPtr(const void* memory) const override { return is_pinned(memory); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* allocator = new PinnedAllocator;
    return allocator;
  }
  c10::Device getDeviceFromPtr(void* memory) const override {
    return {kType, static_cast<c10::DeviceIndex>(world().device_of(memory))};
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const auto before = std::exchange(current_device, storage.device().index());
    auto memory = device_allocator().allocate(bytes);
    if (const size_t kept = std::min(storage.nbytes(), bytes); kept > 0) {
      device_allocator().copy_data(memory.get(), storage.data(), kept);
    }
    current_device = before;
    storage.unsafeGetStorageImpl()->set_data_ptr(std::move(memory));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

const struct Registered {
  Registered() {
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    c10::SetAllocator(kType, &device_allocator());
  }
} kRegistered;

}  // namespace

World& world() {
  static auto* made = new World;
  return *made;
}

c10::Allocator& device_allocator() {
  static auto* allocator = new DeviceAllocator;
  return *allocator;
}

StreamId current_stream(c10::DeviceIndex device) {
  const c10::DeviceIndex known = known_device(device);
  return {known, current_streams[static_cast<size_t>(known)]};
}

bool is_pinned(const void* memory) { return pinned_memory().holds(memory); }
void keep_pinned(const void* memory, StreamId stream) { pinned_memory().keep(memory, world().position(stream)); }
void pin(const void* memory, size_t bytes) { pinned_memory().pin(memory, bytes); }
void unpin(const void* memory) { pinned_memory().unpin(memory); }
void hang(StreamId stream) {
  const auto forever = [] {
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  };
  world().enqueue(stream, forever, true);
}

Place place_of(const at::Tensor& tensor) {
  const bool has_memory = tensor.storage().data() != nullptr;
  void* memory = !has_memory ? nullptr : on_device(tensor) ? world().open(tensor.const_data_ptr()) : tensor.data_ptr();
  return {memory, tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
}

at::Tensor open(const Place& place) {
  return at::from_blob(place.memory, place.sizes, place.strides, at::TensorOptions().dtype(place.type));
}

}  // namespace gyre::test_device
